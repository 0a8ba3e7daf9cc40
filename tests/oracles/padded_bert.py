"""The padded reference: transformers' BertForPreTraining with eager attention and our weights."""

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig as PeerConfig
from transformers import BertForPreTraining as PeerModel

from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch

NOT_IN_LAYERS = {
    "bert.embeddings.word": "bert.embeddings.word_embeddings",
    "bert.embeddings.position": "bert.embeddings.position_embeddings",
    "bert.embeddings.segment": "bert.embeddings.token_type_embeddings",
    "bert.embeddings.norm": "bert.embeddings.LayerNorm",
    "bert.pooler": "bert.pooler.dense",
    "mlm.transform": "cls.predictions.transform.dense",
    "mlm.norm": "cls.predictions.transform.LayerNorm",
    "mlm": "cls.predictions",
    "nsp": "cls.seq_relationship",
}
IN_LAYERS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


def peer_name(name: str) -> str:
    """The name in transformers of one of our parameters."""
    module, kind = name.rsplit(".", 1)
    if module.startswith("bert.layers."):
        _, _, number, part = module.split(".")
        return f"bert.encoder.layer.{number}.{IN_LAYERS[part]}.{kind}"
    return f"{NOT_IN_LAYERS[module]}.{kind}"


def padded_peer(model: EncoderForPreTraining) -> PeerModel:
    """The reference model with our weights, ready to train, in the dtype of our parameters."""
    config = model.config
    peer = PeerModel(
        PeerConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            hidden_act=config.hidden_act,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=config.max_position_embeddings,
            attn_implementation="eager",
        )
    ).to(model.nsp.weight.dtype)
    peer.config.layer_norm_eps = config.layer_norm_eps
    missing, unexpected = peer.load_state_dict(
        {peer_name(name): value for name, value in model.state_dict().items()}, strict=False
    )
    assert not unexpected
    assert all("decoder" in name or "position_ids" in name for name in missing)
    peer.tie_weights()
    return peer


def pad(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The token ids, segment ids and mask of a flat batch, right-padded to the longest row: [N, S] each."""
    longest = max(batch.lengths)
    shape = (batch.num_rows, longest)
    token_ids, segment_ids = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    mask = torch.zeros(shape, dtype=torch.long)
    ends = np.cumsum(batch.lengths)
    for row, (length, end) in enumerate(zip(batch.lengths, ends, strict=True)):
        token_ids[row, :length] = batch.token_ids[end - length : end]
        segment_ids[row, :length] = batch.segment_ids[end - length : end]
        mask[row, :length] = 1
    return token_ids, segment_ids, mask
