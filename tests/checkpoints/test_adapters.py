"""Low-rank adapters as `peft` has them: the same logits from theirs here and from ours there, the same gradients."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import check_target_module_exists

import bertsmith
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.adapters import (
    _is_target,
    groups_of_targets,
    read_factors,
    with_adapter,
    write_adapter,
)
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.low_rank import add_adapters, average_of_factors, merge_adapters
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.units import EncodedExamples, micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.task_data.spec_of_model import spec_of
from tasks.architecture_samples import WITH_HEADS, config_of, tokenizer_of, write_base_model
from tasks.task_samples import SPECS, examples_of
from tasks.test_interchange import CLASSES, peer_logits

TARGETS = {
    "nomic_bert": ["q_proj", "v_proj", "gate_proj"],
    "gte": ["q_proj", "v_proj", "gate_proj"],
    "eurobert": ["q_proj", "k_proj", "gate_proj"],
    "distilbert": ["q_lin", "v_lin", "lin2"],
    "albert": ["query", "ffn_output"],
    "mpnet": ["q", "v"],
    "modernbert": ["Wqkv", "Wi"],
    "deberta-v2": ["query_proj", "key_proj", "value_proj"],
}
OF_BERT = ["query", "value", "attention.output.dense"]
TYPES = {"single": "SEQ_CLS", "number": "SEQ_CLS", "tags": "TOKEN_CLS", "answer": "QUESTION_ANS"}
EVERY = [(name, "single") for name in (*WITH_HEADS, "nomic_bert", "gte", "eurobert")] + [
    ("bert", kind) for kind in ("number", "tags", "answer")
]
RUNTIME = choose("cpu", "fp32")
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning", "ignore::UserWarning:peft")


def features_of(architecture: str, kind: str) -> EncodedExamples:
    return task_for(SPECS[kind]).encode(examples_of(kind, 6), tokenizer_of(architecture))


def peer_on(base: Path, kind: str) -> torch.nn.Module:
    """The model of `transformers` on a base, with a new head, whose numbers are all at random."""
    options: dict[str, Any] = {} if kind == "answer" else {"num_labels": max(1, len(SPECS[kind].labels))}
    torch.manual_seed(3)
    return CLASSES[SPECS[kind].kind].from_pretrained(base, attn_implementation="eager", **options).eval()


def write_peer_adapter(base: Path, path: Path, architecture: str, kind: str, **options: Any) -> torch.nn.Module:
    """An adapter of `peft`, all of whose numbers are at random, on a base; and the model with it."""
    config = LoraConfig(
        task_type=TYPES[kind],
        r=3,
        lora_alpha=5,
        target_modules=TARGETS.get(architecture, OF_BERT),
        init_lora_weights=False,
        **options,
    )
    model = get_peft_model(peer_on(base, kind), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "modules_to_save" in name:
                parameter.add_(torch.randn_like(parameter))
    model.save_pretrained(path)
    return model.eval()


def with_random_adapters(base: Path, kind: str, targets: list[str] | None) -> tuple[EncoderForTask, list[Any]]:
    """A model on a base with adapters and a new head, all of whose numbers are at random; and its adapted layers."""
    folder = load_any(base)
    model = load_for_task(folder, task_for(SPECS[kind]).head, keep_head=False, seed=5).model.eval()
    groups = groups_of_targets(folder.config, targets)
    add_adapters(model, groups, rank=2, scale=1.5, seed=8)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name or not name.startswith("bert."):
                parameter.add_(torch.randn(parameter.shape, generator=generator))
    return model, groups


def written(base: Path, path: Path, kind: str, targets: list[str] | None = None) -> EncoderForTask:
    """Writes an adapter of random numbers to `path`, and the model that it is merged into next to it."""
    model, groups = with_random_adapters(base, kind, targets)
    factors, spec = merge_adapters(model, groups), SPECS[kind]
    info = ModelMetadata(task=spec.kind, labels=spec.labels, spec=spec.to_dict())
    trained = (model.head.saved_part, *(("pooler",) if model.head.uses_pooler(model.config) else ()))
    save_pretrained(path.with_name("merged"), model, load_any(base).tokenizer, info, trained=trained)
    write_adapter(path, load_any(path.with_name("merged")), factors, 1.5, load_any(base))
    return model


@pytest.mark.parametrize(
    ("architecture", "kind", "is_stabilized"), [("bert", "single", True), *((*pair, False) for pair in EVERY)]
)
def test_an_adapter_of_peft_gives_its_logits_here(
    architecture: str, kind: str, is_stabilized: bool, tmp_path: Path
) -> None:
    base = Path(write_base_model(tmp_path / "base", architecture))
    theirs = write_peer_adapter(base, tmp_path / "adapter", architecture, kind, use_rslora=is_stabilized)
    folder = load_any(tmp_path / "adapter")
    spec = spec_of(folder)
    assert spec.kind == SPECS[kind].kind or kind == "number"
    model = load_for_task(folder, task_for(SPECS[kind]).head, keep_head=True).model.eval()
    features = features_of(architecture, kind)
    expected = peer_logits(theirs.get_base_model(), features, kind)
    np.testing.assert_allclose(task_logits(model, features, RUNTIME), expected, rtol=1e-4, atol=5e-5)
    convert(tmp_path / "adapter", tmp_path / "merged", to="huggingface")
    merged = CLASSES[SPECS[kind].kind].from_pretrained(tmp_path / "merged", attn_implementation="eager")
    np.testing.assert_allclose(peer_logits(merged, features, kind), expected, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(
    ("architecture", "kind", "targets"),
    [
        *((*pair, None) for pair in EVERY),
        *((name, "single", ["all-linear"]) for name in ("bert", "modernbert")),
    ],
)
def test_an_adapter_of_ours_gives_its_logits_in_peft(
    architecture: str, kind: str, targets: list[str] | None, tmp_path: Path
) -> None:
    base, features = Path(write_base_model(tmp_path / "base", architecture)), features_of(architecture, kind)
    apart, _ = with_random_adapters(base, kind, targets)
    expected = task_logits(apart, features, RUNTIME)
    merged = written(base, tmp_path / "adapter", kind, targets)
    np.testing.assert_allclose(task_logits(merged, features, RUNTIME), expected, rtol=1e-4, atol=5e-5)
    theirs = PeftModel.from_pretrained(peer_on(base, kind), str(tmp_path / "adapter"))
    np.testing.assert_allclose(peer_logits(theirs.get_base_model(), features, kind), expected, rtol=1e-4, atol=5e-5)
    folder, whole = load_any(tmp_path / "adapter"), load_any(tmp_path / "merged")
    assert folder.metadata.spec == whole.metadata.spec
    assert folder.tensors.keys() - whole.tensors.keys() <= {"bert.pooler.weight", "bert.pooler.bias"}
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(folder.tensors[name], tensor, rtol=0, atol=1e-6)


def test_a_head_that_no_class_of_transformers_has_is_read_here_and_skipped_there(tmp_path: Path) -> None:
    base = Path(write_base_model(tmp_path / "base"))
    model, features = written(base, tmp_path / "adapter", "on the mean"), features_of("bert", "on the mean")
    head = task_for(SPECS["on the mean"]).head
    ours = load_for_task(load_any(tmp_path / "adapter"), head, keep_head=True).model.eval()
    expected = task_logits(model, features, RUNTIME)
    np.testing.assert_allclose(task_logits(ours, features, RUNTIME), expected, rtol=1e-5, atol=1e-5)
    theirs = PeftModel.from_pretrained(transformers.BertModel.from_pretrained(base), str(tmp_path / "adapter")).eval()
    merged = transformers.BertModel.from_pretrained(tmp_path / "merged").eval()
    token_ids = torch.tensor([[2, 9, 7, 3]])
    states = [model(input_ids=token_ids).last_hidden_state for model in (theirs, merged)]
    torch.testing.assert_close(*states, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "deberta-v2"])
def test_the_gradients_are_those_of_peft(architecture: str, tmp_path: Path) -> None:
    base, features = Path(write_base_model(tmp_path / "base", architecture)), features_of(architecture, "single")
    model, groups = with_random_adapters(base, "single", None)
    written(base, tmp_path / "adapter", "single")
    theirs = PeftModel.from_pretrained(peer_on(base, "single"), str(tmp_path / "adapter"), is_trainable=True).eval()
    with torch.enable_grad():
        for row in range(len(features.rows)):
            ids = torch.from_numpy(features.rows.row(row)[0].astype(np.int64))[None]
            theirs(input_ids=ids).logits.square().sum().backward()
        for batch in micro_batches(features, np.arange(len(features.rows)), micro_tokens=64, device="cpu"):
            model(batch.batch, read=batch.read).square().sum().backward()
    grads = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    assert sum("lora_" in name for name in grads) == 2 * len(groups)
    pairs = read_factors(tmp_path / "adapter", groups, model.config)
    for group, there in zip(pairs, sorted_pairs(grads), strict=True):
        layers = [model.get_submodule(name) for name in group]
        seconds = torch.cat([layer.lora_B.grad for layer in layers])
        torch.testing.assert_close(layers[0].lora_A.grad, there[0], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(seconds, there[1], rtol=1e-3, atol=1e-4)


def sorted_pairs(grads: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The gradients of A and B, in the order of the layers."""
    firsts = [name for name in grads if ".lora_A." in name]
    return [(grads[name], grads[name.replace(".lora_A.", ".lora_B.")]) for name in firsts]


def test_an_adapter_of_another_encoder_is_refused(tmp_path: Path) -> None:
    base = Path(write_base_model(tmp_path / "base"))
    written(base, tmp_path / "adapter", "single")
    write_base_model(tmp_path / "other weights", seed=1)
    with pytest.raises(CheckpointError, match="trained on; found other weights in"):
        load_any(tmp_path / "other weights", adapter=tmp_path / "adapter")
    write_base_model(tmp_path / "roberta", "roberta")
    with pytest.raises(CheckpointError, match="trained on; found other weights in"):
        load_any(tmp_path / "roberta", adapter=tmp_path / "adapter")
    write_peer_adapter(base, tmp_path / "theirs", "bert", "single")
    write_peer_adapter(
        Path(write_base_model(tmp_path / "modern", "modernbert")), tmp_path / "m", "modernbert", "single"
    )
    with pytest.raises(CheckpointError, match="an adapter of RoBERTa with 2 layers of width 32"):
        load_any(tmp_path / "roberta", adapter=tmp_path / "m")
    whole = load_any(base)
    narrow = {name: part[:16] for name, part in whole.tensors.items() if name.startswith("bert.layers.0.query")}
    with pytest.raises(CheckpointError, match=r"other layers or sizes: bert.encoder.layer.0.attention.self.query"):
        with_adapter(dataclasses.replace(whole, tensors={**whole.tensors, **narrow}), tmp_path / "theirs")
    lower = {name: part for name, part in whole.tensors.items() if ".layers.1." not in name}
    with pytest.raises(CheckpointError, match=r"other layers or sizes: bert.encoder.layer.1"):
        with_adapter(dataclasses.replace(whole, tensors=lower), tmp_path / "theirs")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"use_dora": True}, "use_dora True"),
        ({"peft_type": "IA3"}, "peft_type 'IA3'"),
        ({"rank_pattern": {"query": 4}}, "rank_pattern"),
        ({"alpha_pattern": {"query": 4}}, "alpha_pattern"),
        ({"bias": "all"}, "bias 'all'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa'"),
        ({"a_setting_of_tomorrow": 1}, "a_setting_of_tomorrow 1"),
        ({"r": 5}, "r 5"),
        ({"lora_alpha": float("nan")}, "lora_alpha nan"),
        ({"target_modules": ["query"]}, "['query'], without bert.encoder"),
        ({"target_modules": []}, "[], without bert.encoder"),
        ({"target_modules": 7}, "7, without bert.encoder"),
        ({"target_modules": ".*query"}, ".*query, without bert.encoder"),
        ({"target_modules": "("}, "(, without bert.encoder"),
        ({"layers_to_transform": [1]}, "[1], without bert.encoder.layer.0"),
        ({"layers_to_transform": 0}, "0, without bert.encoder.layer.1"),
        ({"layers_to_transform": [0, 1], "layers_pattern": "block"}, "[0, 1], block, without bert.encoder"),
        ({"layers_to_transform": "x"}, "x, without bert.encoder"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
        ({"base_model_name_or_path": "/nowhere/base"}, "/nowhere/base"),
    ],
)
def test_what_is_not_read_of_an_adapter_is_refused_in_one_line(
    changes: dict[str, Any], found: str, tmp_path: Path
) -> None:
    base = Path(write_base_model(tmp_path / "base"))
    write_peer_adapter(base, tmp_path / "adapter", "bert", "single")
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(BertsmithError, match=re.escape(found)):
        load_any(tmp_path / "adapter")


@pytest.mark.parametrize("targets", [["query", "value"], ["dense"], ["bert.encoder.layer.1.output.dense", "key"]])
@pytest.mark.parametrize("numbers", [None, [0], [1, 3], 0, 1])
@pytest.mark.parametrize("pattern", [None, "layer", ["block", "layer"], "block"])
def test_the_layers_that_settings_name_are_those_of_peft(targets: list[str], numbers: Any, pattern: Any) -> None:
    config = {"target_modules": targets, "layers_to_transform": numbers, "layers_pattern": pattern}
    modules = [
        f"bert.encoder.layer.{number}.{name}"
        for number in range(4)
        for name in ("attention.self.query", "attention.self.key", "output.dense", "attention.output.dense")
    ]
    try:
        peer = LoraConfig(**config)
    except ValueError:
        assert not any(_is_target(module, targets, numbers, pattern) for module in modules)
        return
    for module in [*modules, "bert.pooler.dense"]:
        assert _is_target(module, targets, numbers, pattern) == bool(check_target_module_exists(peer, module))


@pytest.mark.parametrize(
    ("adapter", "message"), [("nowhere", "settings of an adapter at .*; found no such file"), (5, "as a path; found")]
)
def test_what_is_not_an_adapter_is_refused(adapter: Any, message: str, tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    with pytest.raises(BertsmithError, match=message):
        bertsmith.load(base, adapter=adapter)


def test_targets_are_names_of_transformers_or_their_ends() -> None:
    config = config_of("bert")
    assert groups_of_targets(config, ["self.value"]) == [("bert.layers.0.value",), ("bert.layers.1.value",)]
    assert len(groups_of_targets(config, ["all-linear"])) == 12
    assert groups_of_targets(config_of("modernbert"), None)[0] == tuple(
        f"bert.layers.0.{name}" for name in ("query", "key", "value")
    )
    with pytest.raises(ConfigError, match="found 'querry'"):
        groups_of_targets(config, ["querry"])
    with pytest.raises(ConfigError, match="also names"):
        groups_of_targets(config, ["dense"])
    with pytest.raises(ConfigError, match="Transformer layers"):
        groups_of_targets(config_of("bilstm"), None)


def test_the_average_of_adapters_is_exact() -> None:
    draw = torch.Generator().manual_seed(0)
    every = [{("a",): (torch.randn(2, 5, generator=draw), torch.randn(4, 2, generator=draw))} for _ in range(3)]
    first, second = average_of_factors(every, 4)["a",]
    assert first.shape == (6, 5)
    expected = sum(factors["a",][1] @ factors["a",][0] for factors in every) / 4
    torch.testing.assert_close(second @ first, expected)
