"""Random configurations of every architecture: our answers equal those of `transformers`, or the folder is refused.

`transformers` makes and saves the models, with random parameters; both sides read the folder. Each row is read by
itself there, so that padding plays no part. Answers are compared within 1e-4 of their largest number; both are fp32.
"""

import copy
import dataclasses
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained
from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.batch import Batch
from tasks.architecture_samples import CLASS_PREFIXES
from tasks.task_samples import TOKENIZER

ROOM = 1e-4
PREFIXES = {"bert": "Bert", "openai-gpt": "OpenAIGPT", **CLASS_PREFIXES}
HEADS = {
    "ForSequenceClassification": Head(part="classifier", outputs=3, pooled=True),
    "ForTokenClassification": Head(part="classifier", outputs=3, pooled=False),
    "ForMultipleChoice": Head(part="classifier", outputs=1, pooled=True),
    "ForQuestionAnswering": Head(part="span", outputs=2, pooled=False),
}
# One activation that transformers has and that is refused here; the others are computed.
ACTIVATIONS = (
    "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python", "gelu_accurate", "relu", "silu", "swish",
    "quick_gelu", "tanh", "linear", "gelu_10", "relu2", "mish",
)  # fmt: skip
ROPES = (
    None,
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
)
TURNS = (*ROPES, {"type": "linear", "factor": 3.0}, {"rope_type": "dynamic", "factor": 2.0})  # of all layers
ABSENT = (
    "layer_norm_eps", "hidden_act", "pad_token_id", "type_vocab_size", "norm_eps", "hidden_activation", "layer_types",
    "rope_parameters", "local_attention", "classifier_pooling", "embedding_size", "num_hidden_groups", "afn",
    "activation", "layer_norm_epsilon", "architectures", "tie_word_embeddings", "relative_attention_num_buckets",
)  # fmt: skip
SIZES = {"num_hidden_layers": (1, 2, 3), "num_attention_heads": (1, 2, 4), "hidden_size": (16, 24)}
COMMON: dict[str, tuple[Any, ...]] = {
    "hidden_act": ACTIVATIONS,
    "intermediate_size": (8, 40),
    "layer_norm_eps": (1e-12, 1e-5, 1e-2),
    "max_position_embeddings": (24, 40),
    "pad_token_id": (0, 1, 5),
    "type_vocab_size": (1, 2, 3),
    "position_embedding_type": (None, "absolute", "relative_key", "relative_key_query"),
    "tie_word_embeddings": (True, True, False),
    "chunk_size_feed_forward": (None, 1),
    "classifier_dropout": (None, 0.3),
    "torch_dtype": (None, "float32"),
    "problem_type": (None, "regression", "multi_label_classification"),
    "quantization_config": (None, None, None, {"quant_method": "gptq", "bits": 4}),
    "pruned_heads": (None, None, {"0": [0]}),
    "is_causal": (None, None, True),
    "absent": ABSENT,
}
OWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "bert": {"is_decoder": (False, True), "add_cross_attention": (False, False, True)},
    "roberta": {"is_decoder": (False, True), "add_cross_attention": (False, False, True)},
    "xlm-roberta": {"is_decoder": (False, True)},
    "electra": {
        "embedding_size": (12, 24), "is_decoder": (False, True), "summary_type": ("first", "mean", "last"),
        "summary_use_proj": (True, False), "summary_activation": ("gelu", "tanh"),
    },
    "albert": {
        "embedding_size": (12, 24), "num_hidden_groups": (1, 2), "inner_group_num": (1, 1, 2),
        "classifier_dropout_prob": (0.1,),
    },
    "distilbert": {"sinusoidal_pos_embds": (False, True), "activation": ACTIVATIONS, "hidden_dim": (8, 40)},
    "mpnet": {"relative_attention_num_buckets": (32, 8, 40)},
    "openai-gpt": {
        "afn": ("gelu", "relu", "silu", "swish"), "n_positions": (24, 40), "layer_norm_epsilon": (1e-5, 1e-2),
        "n_inner": (None, 20), "summary_type": ("cls_index", "mean"),
    },
    "deberta-v2": {
        "relative_attention": (True, True, False), "position_buckets": (-1, 4, 6, 7, 2, 256),
        "max_relative_positions": (-1, 5, 9, 40, 1),
        "pos_att_type": ("p2c|c2p", "c2p", "P2C | c2p", ["p2c"], "", "p2p"),
        "share_att_key": (True, False), "norm_rel_ebd": ("none", "layer_norm"), "position_biased_input": (False, True),
        "conv_kernel_size": (0, 3, 5, 2), "conv_act": ("tanh", "gelu", "mish"), "conv_groups": (1, 2),
        "type_vocab_size": (0, 0, 2), "legacy": (True, False), "pooler_hidden_act": ("gelu", "tanh", "gelu_10"),
        "pooler_dropout": (0, 0.2), "cls_dropout": (None, 0.1), "embedding_size": (12, 24),
        "attention_head_size": (4, 24),
    },
    "modernbert": {
        "hidden_activation": ACTIVATIONS, "norm_eps": (1e-5, 1e-2), "local_attention": (2, 4, 5, 128),
        "classifier_pooling": ("cls", "mean"), "classifier_activation": ("gelu", "relu"), "norm_bias": (False, True),
        "attention_bias": (False, True), "mlp_bias": (False, True), "classifier_bias": (False, True),
        "decoder_bias": (True, False), "rope": ROPES, "sparse_prediction": (False, True),
        "layer_types": (None, "global", "local", "mixed"),
    },
    "nomic_bert": {"rope_parameters": TURNS, "rope_scaling": TURNS, "rope_theta": (50.0,), "head_dim": (None, 4, 8)},
    "gte": {
        "rope_parameters": TURNS, "rope_scaling": TURNS, "rope_theta": (50.0,), "type_vocab_size": (0, 1, 2),
        "use_memory_efficient_attention": (True,), "unpad_inputs": (True,),
    },
    "eurobert": {
        "num_key_value_heads": (1, 2, 4), "rms_norm_eps": (1e-6, 1e-2), "rotary": ROPES, "head_dim": (None, 4, 8),
        "attention_bias": (False, True), "mlp_bias": (False, True), "tie_word_embeddings": (False, True),
        "classifier_pooling": ("bos", "mean", "late"),
    },
}  # fmt: skip
NAMES = {
    "openai-gpt": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    "distilbert": {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
}
DISENTANGLED = {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 4, "type_vocab_size": 0}
WITH_SEGMENTS = ("bert", "electra", "albert", "roberta", "deberta-v2", "nomic_bert", "gte")
LATE = ("quantization_config", "pruned_heads", "torch_dtype", "rope_scaling")  # set in the file alone
USUAL = 3  # changed keys at most, so that most folders are not refused


@st.composite
def models(draw: st.DrawFn) -> tuple[str, str, dict[str, Any], int]:
    """An architecture, a head, some keys of the configuration, and a seed."""
    architecture = draw(st.sampled_from(sorted(PREFIXES)))
    heads = ["Model", "LMHeadModel" if architecture == "openai-gpt" else "ForMaskedLM"]
    heads += ["ForSequenceClassification"] if architecture == "openai-gpt" else list(HEADS)
    head = draw(st.sampled_from(heads))
    names = NAMES.get(architecture, {})
    values = {names.get(name, name): draw(st.sampled_from(choices)) for name, choices in SIZES.items()}
    known = COMMON | OWN[architecture]
    values |= DISENTANGLED if architecture == "deberta-v2" else {}
    for name in draw(st.lists(st.sampled_from(sorted(known)), max_size=USUAL, unique=True)):
        values[name] = draw(st.sampled_from(known[name]))
    return (
        architecture,
        head,
        {name: value for name, value in values.items() if value is not None},
        draw(st.integers(0, 99)),
    )


def write(path: Path, architecture: str, head: str, values: dict[str, Any], seed: int) -> None:
    """The folder of a model of `transformers`; what that library refuses raises whatever it raises."""
    values = {"vocab_size": 41, "pad_token_id": 1, "hidden_dropout_prob": 0.0, **copy.deepcopy(values)}
    late = {name: values.pop(name) for name in LATE if name in values}
    removed = values.pop("absent", "")
    kinds = values.pop("layer_types", None)
    if kinds is not None:
        every = {"global": 1, "local": 99, "mixed": 2}[kinds]
        layers = range(values["num_hidden_layers"])
        values["layer_types"] = ["full_attention" if n % every == 0 else "sliding_attention" for n in layers]
    if rope := values.pop("rope", None):
        values["rope_parameters"] = {"full_attention": dict(rope), "sliding_attention": {"rope_type": "default"}}
    config = transformers.AutoConfig.for_model(architecture, **values)
    if head in HEADS:
        config.num_labels = HEADS[head].outputs if head != "ForMultipleChoice" else 2
    torch.manual_seed(seed)
    model = getattr(transformers, PREFIXES[architecture] + head)._from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(path)
    file = path / "config.json"
    written = json.loads(file.read_text()) | late
    written.pop(removed, None)
    file.write_text(json.dumps(written))


def rows(seed: int, segments: int, pad: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The ids and segments of three rows; none has the id of the padding."""
    draw = np.random.default_rng(seed)
    ids = [6 + draw.integers(0, 35, length) for length in (9, 1, 12)]
    assert pad < 6
    kinds = [np.sort(draw.integers(0, segments, len(row))) for row in ids]
    return ids, kinds


def ours(path: Path, head: str, ids: list[np.ndarray], kinds: list[np.ndarray]) -> list[np.ndarray]:
    """Our answers for each row."""
    folder = dataclasses.replace(read_model_folder(path), tokenizer=TOKENIZER)
    lengths = tuple(len(row) for row in ids)
    batch = Batch.from_flat(np.concatenate(ids), np.concatenate(kinds), lengths)
    model: Any
    if head in HEADS:
        model = load_for_task(folder, HEADS[head], keep_head=True).model.eval()
        assert isinstance(model, EncoderForTask)
        answers = model(batch)
        return np.split(answers.numpy(), len(ids)) if HEADS[head].pooled else _by_row(answers, lengths)
    model = load_pretrained(folder).model.eval()
    if head == "Model":
        return _by_row(model.encoder(batch), lengths)
    return _by_row(model(batch, masked=torch.arange(sum(lengths))).mlm_logits, lengths)


def _by_row(answers: torch.Tensor, lengths: tuple[int, ...]) -> list[np.ndarray]:
    return [part.numpy() for part in answers.split(lengths)]


def theirs(
    path: Path, architecture: str, head: str, ids: list[np.ndarray], kinds: list[np.ndarray]
) -> list[np.ndarray]:
    """The answers of `transformers` for each row."""
    model = (
        getattr(transformers, PREFIXES[architecture] + head).from_pretrained(path, attn_implementation="eager").eval()
    )
    outputs = []
    for row, kind in zip(ids, kinds, strict=True):
        inputs = {
            "input_ids": torch.from_numpy(row)[None],
            "attention_mask": torch.ones(1, len(row), dtype=torch.int64),
        }
        if kind.any():
            inputs["token_type_ids"] = torch.from_numpy(kind)[None]
        if head == "ForMultipleChoice":
            result = model(**{name: values[None] for name, values in inputs.items()}).logits.view(1, 1)
        elif head == "ForQuestionAnswering":
            both = model(**inputs)
            result = torch.stack([both.start_logits, both.end_logits], dim=-1)[0]
        else:
            output = model(**inputs)
            result = output.last_hidden_state[0] if head == "Model" else output.logits.view(-1, output.logits.shape[-1])
        outputs.append(result.float().numpy())
    return outputs


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=max(60, settings.default.max_examples))
@given(model=models())
def test_answers_equal_those_of_transformers_or_the_folder_is_refused(
    model: tuple[str, str, dict[str, Any], int],
) -> None:
    compare(*model)


def compare(architecture: str, head: str, values: dict[str, Any], seed: int) -> bool:
    """Whether both sides gave the same answers; False if one of them refuses the folder."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder)
        try:
            write(path, architecture, head, values, seed)
        except Exception:  # noqa: BLE001 - whatever that library raises for what it cannot compute
            return False
        segments = max(1, values.get("type_vocab_size", 1)) if architecture in WITH_SEGMENTS else 1
        ids, kinds = rows(seed, segments, 5)
        try:
            outputs = ours(path, head, ids, kinds)
        except BertsmithError as error:
            assert len(str(error)) < 1500, error  # noqa: PT017
            return False
        try:
            expected = theirs(path, architecture, head, ids, kinds)
        except (RuntimeError, AssertionError):  # of tensors that do not fit what the configuration says
            assert "absent" in values
            return False
    for mine, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=ROOM * max(1, np.abs(wanted).max()))
    return True


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.parametrize("architecture", sorted(PREFIXES))
def test_usual_configurations_are_not_refused(architecture: str) -> None:
    names = NAMES.get(architecture, {})
    values = {names.get(name, name): choices[-1] for name, choices in SIZES.items()}
    assert compare(architecture, "Model", values, 0)
    assert compare(architecture, "ForSequenceClassification", values, 0)
