"""DistilBERT and RoBERTa are those of `transformers`: every head both ways, ids of texts, old and damaged folders."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, VocabularyError
from bertsmith.models.checkpoints.architectures import ARCHITECTURES, architecture_of, read_config
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained, save_pretrained, untrained
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.weights import split_fused
from bertsmith.models.encoders.roberta import RobertaConfig
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.text.tokenizers.pack import pack_rows
from tasks.architecture_samples import (
    CLASS_PREFIXES,
    HEADS,
    OTHERS,
    change_json,
    config_of,
    has_class,
    tokenizer_of,
    write_peer,
)
from tasks.task_samples import SPECS, TOKENIZER

EVERY = pytest.mark.parametrize("architecture", OTHERS)
EVERY_HEAD = pytest.mark.parametrize(
    ("architecture", "head"), [(name, head) for head in HEADS for name in OTHERS if has_class(name, head)]
)
ROOM = 1e-5
LENGTHS = (9, 4, 7)
LAYERS = {
    "ForSequenceClassification": Head(part="classifier", outputs=3, pooled=True),
    "ForTokenClassification": Head(part="classifier", outputs=3, pooled=False),
    "ForMultipleChoice": Head(part="classifier", outputs=1, pooled=True),
    "ForQuestionAnswering": Head(part="span", outputs=2, pooled=False),
}
TEXTS = ("The film was great.", "anna and bert  in Rome ?", "naïve 中国 ##s", "", "a" * 30)


def rows(architecture: str) -> tuple[Batch, dict[str, torch.Tensor]]:
    """Rows of several lengths: flat, and padded on the right."""
    special = tokenizer_of(architecture).vocabulary
    draw = np.random.default_rng(0)
    ids = [draw.integers(5, config_of(architecture).vocab_size, length) for length in LENGTHS]
    padded = torch.full((len(LENGTHS), max(LENGTHS)), special.pad_id)
    mask = torch.zeros_like(padded)
    for number, row in enumerate(ids):
        padded[number, : len(row)] = torch.from_numpy(row)
        mask[number, : len(row)] = 1
    flat = np.concatenate(ids)
    return Batch.from_flat(flat, np.zeros_like(flat), LENGTHS), {"input_ids": padded, "attention_mask": mask}


def ours(folder: ModelFolder, head: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Our model in fp64, and its answer for the rows, at every position that a head of that kind reads."""
    batch, _ = rows(folder.config.model_type)
    if head == "Model":
        model = load_pretrained(load_any(folder)).model.double()
        return model, model.encoder(batch)
    if head == "ForMaskedLM":
        model = load_pretrained(load_any(folder)).model.double()
        return model, model(batch, masked=torch.arange(sum(LENGTHS))).mlm_logits
    layer = LAYERS[head]
    task = load_for_task(load_any(folder), layer, keep_head=True).model.double()
    return task, task(batch, read=Read.first(batch) if layer.pooled else None)


def theirs(model: torch.nn.Module, architecture: str, head: str) -> torch.Tensor:
    """The same of `transformers`, without what is padding."""
    _, padded = rows(architecture)
    real = padded["attention_mask"].bool()
    if head == "ForMultipleChoice":
        result = model(**{name: values[None] for name, values in padded.items()})
        return result.logits.view(-1, 1)
    result = model(**padded)
    if head == "ForQuestionAnswering":
        return torch.stack([result.start_logits, result.end_logits], dim=-1)[real]
    values = result.last_hidden_state if head == "Model" else result.logits
    return values if values.dim() == 2 else values[real]


@EVERY_HEAD
def test_logits_and_gradients_of_a_folder_of_transformers_are_theirs(
    architecture: str, head: str, tmp_path: Path
) -> None:
    write_peer(tmp_path, architecture, head, num_labels=LAYERS[head].outputs if head in LAYERS else 2)
    model = getattr(transformers, f"AutoModel{head.removeprefix('Model')}").from_pretrained(tmp_path).double().eval()
    folder = load_any(tmp_path)
    assert not folder.report.unknown
    mine, logits = ours(folder, head)
    expected = theirs(model, architecture, head)
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROOM)
    labels = torch.arange(len(logits)) % logits.shape[1]
    losses = [F.cross_entropy(values, labels) for values in (logits, expected)]
    torch.testing.assert_close(*losses, rtol=0, atol=ROOM)
    for loss in losses:
        loss.backward()
    names = architecture_of(folder.config).names
    result = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    first = {copy: names.to_huggingface(ours) for copy, ours in names.copies.items()}  # the second name of one tensor
    result = {names.from_module(name): gradient for name, gradient in result.items()}
    gradients = split_fused({first.get(name, name): gradient for name, gradient in result.items()}, names)
    mapped = 0
    for name, parameter in mine.named_parameters():
        if parameter.grad is not None:
            there = gradients[names.to_huggingface(name, CLASS_PREFIXES[architecture] + head)]
            torch.testing.assert_close(parameter.grad, there, rtol=0, atol=ROOM, msg=name)
            mapped += 1
    assert mapped == len(gradients)


def test_the_pooler_of_a_bare_roberta_is_theirs(tmp_path: Path) -> None:
    model = write_peer(tmp_path, "roberta", "Model").double()
    folder = load_any(tmp_path)
    assert folder.parts == ("pooler",)
    mine, hidden = ours(folder, "Model")
    batch, padded = rows("roberta")
    pooled = mine.encoder.pool(hidden[Read.first(batch).positions])
    torch.testing.assert_close(pooled, model(**padded).pooler_output, rtol=0, atol=ROOM)


@EVERY_HEAD
def test_a_folder_written_here_is_the_same_model_in_transformers(architecture: str, head: str, tmp_path: Path) -> None:
    model = write_peer(tmp_path / "theirs", architecture, head)
    folder = load_any(tmp_path / "theirs")
    task = {"ForTokenClassification": "tagging", "ForMultipleChoice": "choice"}.get(head)
    write_model_folder(
        tmp_path / "ours",
        config=folder.config,
        tensors=folder.tensors,
        tokenizer=folder.tokenizer,
        metadata=type(folder.metadata).from_dict({"task": task}),
    )
    declared = json.loads((tmp_path / "ours/config.json").read_text())["architectures"]
    assert declared == [CLASS_PREFIXES[architecture] + head]
    auto = getattr(transformers, f"AutoModel{head.removeprefix('Model')}")
    again, info = auto.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(again) is type(model)
    stored, before = again.state_dict(), model.state_dict()
    assert stored.keys() == before.keys()
    assert all(torch.equal(stored[name], before[name]) for name in before)


@pytest.mark.parametrize("description", [True, False], ids=["tokenizer.json", "old files"])
@EVERY
def test_texts_have_the_ids_they_have_in_transformers_before_and_after_saving(
    architecture: str, description: bool, tmp_path: Path
) -> None:
    write_peer(tmp_path / "theirs", architecture, "Model", description=description)
    folder = load_any(tmp_path / "theirs")
    tokenizer = folder.tokenizer
    write_model_folder(tmp_path / "ours", config=folder.config, tensors=folder.tensors, tokenizer=tokenizer)
    again = load_any(tmp_path / "ours").tokenizer
    for path in ("theirs", "ours"):
        other = transformers.AutoTokenizer.from_pretrained(tmp_path / path)
        for pairs in (None, TEXTS[::-1]):
            for mine in (tokenizer, again):
                result = pack_rows(
                    mine.encode_batch(TEXTS),
                    None if pairs is None else mine.encode_batch(pairs),
                    template=mine.template,
                    max_length=64,
                )
                expected = other(list(TEXTS), None if pairs is None else list(pairs))
                assert [result.row(row)[0].tolist() for row in range(len(TEXTS))] == expected["input_ids"]
    segments = {"token_type_ids"} if folder.config.type_vocab_size > 1 else set()
    assert set(other("a")) == {"input_ids", "attention_mask"} | segments


def test_the_rows_of_roberta_have_two_ends_between_texts_and_one_segment() -> None:
    tokenizer = tokenizer_of("roberta")
    first, second = (tokenizer.encode_batch([text]) for text in ("the film", "it was"))
    packed = pack_rows(first, second, template=tokenizer.template, max_length=64)
    pieces = [tokenizer.vocabulary.pieces[id] for id in packed.token_ids.tolist()]
    assert pieces == ["<s>", "the", "Ġfilm", "</s>", "</s>", "i", "t", "Ġwas", "</s>"]
    assert set(packed.segment_ids.tolist()) == {0}


def rewrite(folder: Path, change: object) -> None:
    """Stores other tensors in a folder."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


@pytest.mark.parametrize(
    ("architecture", "decoder", "bias"),
    [("roberta", "lm_head.decoder", "lm_head.bias"), ("distilbert", "vocab_projector", "")],
)
def test_second_copies_and_buffers_of_old_folders_are_left_out(
    architecture: str, decoder: str, bias: str, tmp_path: Path
) -> None:
    write_peer(tmp_path, architecture, "ForMaskedLM")

    def old(tensors: dict[str, torch.Tensor]) -> None:
        tensors[f"{decoder}.weight"] = tensors[f"{architecture}.embeddings.word_embeddings.weight"].clone()
        if bias:
            tensors[f"{decoder}.bias"] = tensors[bias].clone()
        tensors[f"{architecture}.embeddings.position_ids"] = torch.arange(64)[None]

    before = load_any(tmp_path)
    rewrite(tmp_path, old)
    after = load_any(tmp_path)
    assert after.tensors.keys() == before.tensors.keys()
    assert set(after.report.skipped.values()) == {"a copy of a parameter", "a buffer, not a parameter"}
    rewrite(tmp_path, lambda tensors: tensors[f"{decoder}.weight"].add_(1.0))
    with pytest.raises(CheckpointError, match="a decoder tied to the word table"):
        load_any(tmp_path)


def test_of_two_poolers_in_a_file_a_classifier_takes_its_own(tmp_path: Path) -> None:
    """Folders of `transformers` 2 hold the pooler of pre-training, which no classifier of RoBERTa reads."""
    model = write_peer(tmp_path, "roberta", "ForSequenceClassification", num_labels=3)

    def old(tensors: dict[str, torch.Tensor]) -> None:
        tensors["roberta.pooler.dense.weight"] = torch.ones(32, 32)
        tensors["roberta.pooler.dense.bias"] = torch.ones(32)

    rewrite(tmp_path, old)
    folder = load_any(tmp_path)
    assert list(folder.report.skipped.values()) == ["a part that the head of this model does not use"] * 2
    _, logits = ours(folder, "ForSequenceClassification")
    expected = theirs(model.double(), "roberta", "ForSequenceClassification")
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROOM)


def _drop(*names: str) -> object:
    return lambda folder: rewrite(folder, lambda tensors: [tensors.pop(name) for name in names])


def _add(name: str) -> object:
    return lambda folder: rewrite(folder, lambda tensors: tensors.update({name: torch.zeros(3)}))


DAMAGE = {
    "a layer is missing": (
        "distilbert", _drop("distilbert.transformer.layer.1.ffn.lin1.bias"),
        CheckpointError, r"no distilbert\.transformer\.layer\.1\.ffn\.lin1\.bias",
    ),
    "half of a head": ("roberta", _drop("lm_head.layer_norm.bias"), CheckpointError, r"no lm_head\.layer_norm\.bias"),
    "an unknown tensor": ("roberta", _add("roberta.extra"), CheckpointError, r"unknown roberta\.extra"),
    "a tensor of BERT": (
        "distilbert", _add("distilbert.embeddings.token_type_embeddings.weight"),
        CheckpointError, r"unknown distilbert\.embeddings\.token_type_embeddings\.weight",
    ),
    "another width": (
        "roberta", lambda folder: change_json(folder / "config.json", intermediate_size=48),
        CheckpointError, r"roberta\.encoder\.layer\.0\.intermediate\.dense\.weight is \[64, 32\] instead of \[48, 32\]",
    ),
    "a configuration without its sizes": (
        "distilbert", lambda folder: change_json(folder / "config.json", dim=None),
        ConfigError, "expected dim in the configuration",
    ),
    "another vocabulary": (
        "roberta", lambda folder: change_json(folder / "config.json", vocab_size=500), VocabularyError, "500 pieces",
    ),
    "merges without a pair": (
        "roberta", lambda folder: (folder / "merges.txt").write_text("#version: 0.2\nnothing\n"),
        CheckpointError, "a tokenizer that the package tokenizers",
    ),
    "a vocabulary that is a list": (
        "roberta", lambda folder: (folder / "vocab.json").write_text("[1]"), BertsmithError, "a JSON object",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_one_clear_error(damage: str, tmp_path: Path) -> None:
    architecture, change, error, message = DAMAGE[damage]
    write_peer(tmp_path, architecture, "ForMaskedLM", description=False)
    load_any(tmp_path)
    change(tmp_path)
    with pytest.raises(error, match=message):
        load_any(tmp_path)


def test_an_unknown_architecture_names_those_that_are_known(tmp_path: Path) -> None:
    write_peer(tmp_path, "roberta", "Model")
    change_json(tmp_path / "config.json", model_type="deberta")
    with pytest.raises(ConfigError, match=f"a model_type among {', '.join(ARCHITECTURES)}; found") as caught:
        load_any(tmp_path)
    assert str(caught.value).endswith("'deberta'; use a model of one of these architectures; others have other layers")
    assert {"bert", "roberta", "electra", "albert", "elmo"} < set(ARCHITECTURES)


WITHOUT_HEADS = {
    "distilbert": ("mlm", "pooler"),
    "electra": ("mlm", "pooler"),
    "modernbert": ("mlm", "pooler"),
    "deberta-v2": ("mlm", "pooler"),
    "nomic_bert": ("mlm", "pooler"),
    "gte": ("mlm", "pooler"),
    "eurobert": ("mlm", "pooler"),
}


@EVERY
def test_what_a_bare_encoder_lacks_is_named(architecture: str, tmp_path: Path) -> None:
    write_peer(tmp_path, architecture, "Model")
    loaded = load_pretrained(load_any(tmp_path))
    # A bare DistilBERT has no pooler; that of a RoBERTa is never trained, but stored.
    assert loaded.new_heads == WITHOUT_HEADS.get(architecture, ("mlm",))
    assert not hasattr(loaded.model, "nsp")


def test_a_roberta_with_word_pieces_reads_pairs_in_its_one_segment(tmp_path: Path) -> None:
    config = RobertaConfig(
        vocab_size=len(TOKENIZER.vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
    )
    save_pretrained(tmp_path / "model", untrained(config, 0), TOKENIZER, ModelMetadata())
    result = load_any(tmp_path / "model").require_tokenizer()
    rows = pack_rows([[7, 8]], [[9]], template=result.template, max_length=16)
    assert rows.segment_ids.tolist() == [0] * 6


def test_positions_that_leave_no_room_for_a_token_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_position_embeddings above 2"):
        RobertaConfig(max_position_embeddings=2)


SIZES = {
    "vocab_size": 30,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 128,
}
OF_OTHER_TYPES = {
    int: ("3", "x", [1], [], {"a": 1}, True, 1.5),
    float: ("3", "x", [1], [], {"a": 1}, True),
    bool: ("3", "x", [1], [], {"a": 1}, 1, 1.5),
    str: (3, [1], [], {"a": 1}, True, 1.5),
    type(None): ("3", "x", [1], [], {"a": 1}, True),  # a dropout that has no default
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_field_of_another_json_type_is_one_line_that_names_it(kind: str) -> None:
    names = ARCHITECTURES[kind].config.json_names
    values = {"model_type": kind, **{names.get(name, name): size for name, size in SIZES.items()}}
    usual = read_config(values).to_dict()
    ours = {theirs: name for name, theirs in names.items()}
    for field, default in usual.items():
        for wrong in OF_OTHER_TYPES[type(default)]:
            said = re.escape(repr(wrong))
            with pytest.raises(ConfigError, match=f"^{ours.get(field, field)} must be .*, not .*{said}"):
                read_config({**values, field: wrong})


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
@pytest.mark.parametrize("field", ["seq_classif_dropout", "qa_dropout"])
def test_the_dropout_of_each_head_is_a_fraction(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be at least 0 and below 1"):
        read_config(
            {
                "model_type": "distilbert",
                "vocab_size": 30,
                "dim": 32,
                "n_layers": 2,
                "n_heads": 2,
                "hidden_dim": 64,
                field: value,
            }
        )


@pytest.mark.parametrize("reads", ["concat", "bilstm"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_head_that_no_other_library_has_is_read_back_from_a_folder_of_any_architecture(
    architecture: str, reads: str, tmp_path: Path
) -> None:
    spec = dataclasses.replace(SPECS["single"], reads=reads, bilstm_cells=4)
    head, tokenizer = task_for(spec).head, tokenizer_of(architecture)
    model = EncoderForTask(untrained(config_of(architecture), 1, tokenizer.vocabulary).encoder, head)
    metadata = ModelMetadata(task=spec.kind, spec=spec.to_dict(), labels=spec.labels)
    save_pretrained(tmp_path / "model", model, tokenizer, metadata, trained=("classifier",))
    again = load_for_task(load_any(tmp_path / "model"), head, keep_head=True).model.state_dict()
    saved = {name: tensor for name, tensor in model.state_dict().items() if ".pooler." not in name}
    assert any(name.startswith(("blocks.", "reader.")) for name in saved)
    for name, tensor in saved.items():
        assert torch.equal(again[name], tensor), name
