"""The table of names."""

import pytest
import torch

from bertsmith.base.core.errors import CheckpointError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.google import from_google, to_google
from bertsmith.models.checkpoints.plan import plan_loading
from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.parameter_names import Match, Skip
from checkpoints.tiny import tiny_tensors

BASE = BertConfig.named("base")
from_huggingface, to_huggingface = NAMES.from_huggingface, NAMES.to_huggingface


def every_name(config: BertConfig) -> list[tuple[str, str, str]]:
    """All parameters of a shape with all heads, as (ours, Hugging Face, Google)."""
    heads = [row.ours for part in NAMES.parts.values() for row in part]
    every = [*NAMES.required_shapes(config), *heads]
    return [(ours, to_huggingface(ours), to_google(ours)[0]) for ours in every]


def test_every_name_round_trips_through_both_formats():
    count = 0
    for ours, huggingface, google in every_name(BASE):
        assert from_huggingface(huggingface) == Match(ours)
        assert from_google(google) == Match(ours, to_google(ours)[1])
        assert (to_huggingface(ours), to_google(ours)[0]) == (huggingface, google)
        count += 1
    assert count == 5 + 12 * 16 + 2 + 5 + 2 + 2 + 2


def test_no_name_occurs_twice_in_a_format():
    columns = list(zip(*every_name(BASE), strict=True))
    assert [len(set(column)) for column in columns] == [len(column) for column in columns]


def test_our_names_are_those_of_our_modules(config):
    model = EncoderForPreTraining(new_encoder(config))
    expected = tiny_tensors(config, "pooler", "mlm", "nsp")
    assert {name: value.shape for name, value in model.state_dict().items()} == {
        name: value.shape for name, value in expected.items()
    }


def test_hugging_face_names_are_those_of_its_modules(config, quiet_transformers):
    import transformers

    theirs = transformers.BertConfig(**config.to_dict())
    parts = {
        transformers.BertForPreTraining: ("pooler", "mlm", "nsp"),
        transformers.BertForSequenceClassification: ("pooler", "classifier"),
        transformers.BertForTokenClassification: ("classifier",),
        transformers.BertForQuestionAnswering: ("span",),
    }
    for kind, present in parts.items():
        stored = {name: tuple(value.shape) for name, value in kind(theirs).state_dict().items()}
        plan = plan_loading(stored, from_huggingface, config, NAMES, "the oracle")
        assert set(plan.take) == set(tiny_tensors(config, *present)), kind


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("bert.embeddings.LayerNorm.gamma", "bert.embeddings.norm.weight"),
        ("encoder.layer.3.output.LayerNorm.beta", "bert.layers.3.output_norm.bias"),
        ("cls.predictions.transform.LayerNorm.gamma", "mlm.norm.weight"),
        ("pooler.dense.weight", "bert.pooler.weight"),
        ("qa_outputs.bias", "span.bias"),
    ],
)
def test_old_names_and_bare_encoders_are_understood(name, ours):
    assert from_huggingface(name) == Match(ours)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bert",
        "bert.encoder.layer.{i}.output.dense.bias",
        "bert.encoder.layer.-1.output.dense.bias",
        "bert.encoder.layer.007.output.dense.bias",
        "bert.encoder.layer.1000.output.dense.bias",
        "bert.encoder.layer.١.output.dense.bias",
        "module.bert.pooler.dense.bias",
        "bert.bert.pooler.dense.bias",
        "classifier.dense.weight",
    ],
)
def test_a_name_without_a_meaning_is_unknown(name):
    assert from_huggingface(name) is None
    assert from_google(name.replace(".", "/")) is None


@pytest.mark.parametrize(
    "name", ["global_step", "bert/pooler/dense/kernel/adam_m", "output_bias/adam_v", "beta1_power", "x/Adam_1"]
)
def test_optimizer_variables_in_a_google_checkpoint_are_skipped(name):
    assert isinstance(from_google(name), Skip)


def test_google_transposes_the_kernels_and_nothing_else():
    """Tables and the two hand-made output matrices are stored unchanged."""
    turned = {google for ours, _, google in every_name(BASE) if to_google(ours)[1]}
    assert turned == {google for _, _, google in every_name(BASE) if google.endswith("/kernel")}


def test_counts_of_variables_are_the_published_ones():
    """199 variables in the encoder of base, 206 with both heads; 391 and 398 for large."""
    for size, encoder in (("base", 199), ("large", 391)):
        shapes = tiny_shapes(BertConfig.named(size), "pooler")
        assert len(shapes) == encoder
        assert len(tiny_shapes(BertConfig.named(size), "pooler", "mlm", "nsp")) == encoder + 7


def test_shapes_have_as_many_numbers_as_the_configuration_says():
    for size in ("tiny", "base", "large"):
        config = BertConfig.named(size)
        encoder = sum(torch.Size(shape).numel() for shape in tiny_shapes(config, "pooler").values())
        heads = sum(torch.Size(shape).numel() for shape in tiny_shapes(config, "pooler", "mlm", "nsp").values())
        assert (encoder, heads) == (config.num_parameters(), config.num_parameters(heads=True))


def tiny_shapes(config: BertConfig, *parts: str) -> dict[str, tuple[int, ...]]:
    shapes = NAMES.required_shapes(config)
    for part in parts:
        shapes |= NAMES.part_shapes(part, config, 3)
    return shapes


def stored_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    return {to_huggingface(name): shape for name, shape in tiny_shapes(config, "pooler", "mlm", "nsp").items()}


def test_all_problems_are_reported_at_once(config):
    stored = stored_shapes(config)
    del stored["bert.embeddings.word_embeddings.weight"], stored["cls.predictions.transform.LayerNorm.bias"]
    stored["bert.pooler.dense.weight"] = (32, 31)
    stored["bert.encoder.layer.1.output.dense.bias"] = (7,)
    stored["adapter.down.weight"] = (4, 4)
    stored["bert.encoder.layer.2.output.dense.bias"] = (32,)
    stored["pooler.dense.bias"] = (32,)
    with pytest.raises(CheckpointError) as caught:
        plan_loading(stored, from_huggingface, config, NAMES, "'x'", name_there=to_huggingface)
    text = str(caught.value)
    for part in (
        "no bert.embeddings.word_embeddings.weight",
        "no cls.predictions.transform.LayerNorm.bias",
        "bert.pooler.dense.weight is [32, 31] instead of [32, 32]",
        "bert.encoder.layer.1.output.dense.bias is [7] instead of [32]",
        "unknown adapter.down.weight",
        "bert.encoder.layer.2.output.dense.bias does not belong to any part of this configuration",
        "bert.pooler.dense.bias and pooler.dense.bias are the same parameter",
        "`bertsmith convert --to huggingface --allow-unknown` writes a folder without the unknown ones",
    ):
        assert part in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("translate", "there", "prefix"),
    [
        (from_huggingface, lambda ours: (to_huggingface(ours), False), "bert."),
        (from_google, to_google, "bert/"),
    ],
)
def test_missing_parameters_have_the_names_of_the_checkpoint(config, translate, there, prefix):
    """With the prefix of the encoder if the other names have it, and without it if they do not."""
    absent = "bert.layers.0.attention_norm.weight"
    stored = {}
    for ours, shape in NAMES.required_shapes(config).items():
        name, transposed = there(ours)
        if ours != absent:
            stored[name] = shape[::-1] if transposed else shape
    bare = {name.removeprefix(prefix): shape for name, shape in stored.items()}
    missing = there(absent)[0]
    for tensors, expected in ((stored, missing), (bare, missing.removeprefix(prefix))):
        with pytest.raises(CheckpointError) as caught:
            plan_loading(tensors, translate, config, NAMES, "'x'", name_there=lambda ours: there(ours)[0])
        assert caught.value.found == f"no {expected}"


def test_unknown_names_can_be_allowed_and_are_reported(config):
    stored = stored_shapes(config) | {"adapter.weight": (4, 4)}
    report = plan_loading(stored, from_huggingface, config, NAMES, "'x'", allow_unknown=True).report
    assert report.unknown == ("adapter.weight",)
    assert "unknown, not loaded: adapter.weight" in report.lines()
    assert report.to_dict()["missing"] == ("classifier", "span")


def test_a_classifier_may_have_any_number_of_rows_but_weight_and_bias_must_agree(config):
    stored = stored_shapes(config) | {"classifier.weight": (5, 32), "classifier.bias": (5,)}
    assert "classifier.bias" in plan_loading(stored, from_huggingface, config, NAMES, "'x'").take
    stored["classifier.bias"] = (4,)
    with pytest.raises(CheckpointError, match=r"classifier.bias is \[4\] instead of \[5\]"):
        plan_loading(stored, from_huggingface, config, NAMES, "'x'")


def test_the_decoder_is_a_copy_of_the_word_table_or_replaces_it(config):
    stored = stored_shapes(config)
    word = "bert.embeddings.word_embeddings.weight"
    stored["cls.predictions.decoder.weight"] = stored[word]
    stored["cls.predictions.decoder.bias"] = stored["cls.predictions.bias"]
    plan = plan_loading(stored, from_huggingface, config, NAMES, "'x'")
    assert [copy for _, copy, _ in plan.copies] == ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"]
    del stored["cls.predictions.bias"]
    plan = plan_loading(stored, from_huggingface, config, NAMES, "'x'")
    assert plan.take["mlm.bias"] == ("cls.predictions.decoder.bias", False)
    stored["cls.predictions.decoder.weight"] = (1, 2)
    with pytest.raises(CheckpointError, match=r"decoder.weight is \[1, 2\] instead of"):
        plan_loading(stored, from_huggingface, config, NAMES, "'x'")
