"""Tiny models of GLiNER in the layout of their owner: `gliner_config.json`, weights, and the files of a tokenizer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from tasks.architecture_samples import config_of, peer_tokenizer, tokenizer_of

WIDTH, MARKS = 16, ("[FLERT]", "<<ENT>>", "<<SEP>>")


def encoder_of(architecture: str, **changes: object) -> transformers.PreTrainedModel:
    """The encoder of `transformers` below the head, without dropout."""
    values = config_of(architecture, dropout=0.0).to_dict() | changes
    config = transformers.AutoConfig.for_model(architecture, **values)
    more = {"add_pooling_layer": False} if architecture == "bert" else {}
    return transformers.AutoModel.from_config(config, attn_implementation="eager", **more).eval()


def tokenizer_there(architecture: str, *added: str) -> Any:
    """The tokenizer of `transformers`, with these pieces added."""
    if architecture == "bert":
        pieces = {piece: id for id, piece in enumerate(tokenizer_of("bert").vocabulary.pieces)}
        tokenizer: Any = transformers.BertTokenizer(vocab=pieces, model_max_length=64)
    else:
        tokenizer = peer_tokenizer(architecture)
        tokenizer = type(tokenizer)(
            vocab=[tuple(entry) for entry in json.loads(tokenizer.backend_tokenizer.to_str())["model"]["vocab"]]
        )
    tokenizer.add_tokens(list(added), special_tokens=True)
    return tokenizer


def tensors_of(encoder: torch.nn.Module, mode: str, lstm_layers: int) -> dict[str, Tensor]:
    """Parameters by the names of the owner, drawn at random."""
    e, inner = WIDTH, (2 if mode == "marker" else 4) * WIDTH
    shapes = {
        f"token_rep_layer.bert_layer.model.{name}": tuple(value.shape) for name, value in encoder.state_dict().items()
    }

    def linear(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    linear("token_rep_layer.projection", 32, e)
    for layer in range(lstm_layers):
        for end in (f"l{layer}", f"l{layer}_reverse"):
            for side in ("ih", "hh"):
                shapes[f"rnn.lstm.weight_{side}_{end}"] = (2 * e, e if side == "ih" else e // 2)
                shapes[f"rnn.lstm.bias_{side}_{end}"] = (2 * e,)
    if mode == "token_level":
        linear("scorer.proj_token", e, 2 * e)
        linear("scorer.proj_label", e, 2 * e)
        linear("scorer.out_mlp.0", 3 * e, 4 * e)
        linear("scorer.out_mlp.3", 4 * e, 3)
        return _drawn(shapes)
    spans = "span_rep_layer.span_rep_layer"
    for side in ("project_start", "project_end"):
        linear(f"{spans}.{side}.0", e, inner)
        linear(f"{spans}.{side}.3", inner, e)
    if mode == "marker":
        linear(f"{spans}.out_project", 2 * e, e)
    else:
        linear(f"{spans}.out_project.0", 2 * e, inner)
        linear(f"{spans}.out_project.3", inner, e)
    linear("prompt_rep_layer.0", e, 4 * e)
    linear("prompt_rep_layer.3", 4 * e, e)
    return _drawn(shapes)


def _drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    random, result = np.random.default_rng(5), {}
    for name, shape in sorted(shapes.items()):
        drawn = random.standard_normal(shape, dtype=np.float32)
        is_norm = "norm" in name.lower() and name.endswith("weight")
        result[name] = torch.from_numpy(drawn * (1.1 / shape[-1] ** 0.5 if len(shape) == 2 else 0.2) + is_norm)
    return result


def write_gliner(
    path: Path, architecture: str = "bert", *, mode: str = "markerV0", lstm_layers: int = 1, **values: object
) -> Path:
    """A folder as `save_pretrained` of the owner writes it; `values` are of its configuration, None removes one."""
    tokenizer = tokenizer_there(architecture, *MARKS)
    encoder = encoder_of(architecture, vocab_size=len(tokenizer))
    tokenizer.save_pretrained(path)
    save_file(tensors_of(encoder, mode, lstm_layers), path / "model.safetensors")
    config = {
        "class_token_index": len(tokenizer) - 2,
        "encoder_config": encoder.config.to_dict(),
        "hidden_size": WIDTH,
        "max_len": 384,
        "max_width": 3,
        "model_name": "tests/encoder",
        "num_rnn_layers": lstm_layers,
        "span_mode": mode,
        "vocab_size": len(tokenizer),
    }
    config = {name: value for name, value in {**config, **values}.items() if value is not None}
    (path / "gliner_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path
