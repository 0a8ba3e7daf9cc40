"""The equivalence check: a differing export is not written, and export.json records the differences."""

import dataclasses
import gzip
import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import binom

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.storage.files import digest_file
from bertsmith.inference.export import conversion as export_module
from bertsmith.inference.export import readback as export_readback
from bertsmith.inference.export.check import compare, library_model
from bertsmith.inference.export.conversion import export
from bertsmith.inference.export.record import (
    INT8_LIMIT,
    Comparison,
    Difference,
    chance_changes,
    require_equal,
    require_near,
)
from bertsmith.inference.export.sample import LONGEST_ODD, DataFile, odd_rows, sample_for
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints import huggingface, rewriting
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.weights import write_safetensors
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import POSITIONS
from bertsmith.tasks.encoding.onnx_session import INPUTS, outputs_of
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.task_data.spec_of_model import spec_of
from export.export_models import write_data, write_task
from tasks.architecture_samples import config_of
from tasks.task_samples import CONFIG, OF_PARTS, SPECS, TOKENIZER, WITH_GRAPH, examples_of, write_base_model
from written_files import file_with

needs_onnx = pytest.mark.usefixtures("_onnx")


@pytest.fixture
def _onnx() -> None:
    pytest.importorskip("onnx", reason="needs the extra export")
    pytest.importorskip("onnxruntime", reason="needs the extra export")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_base_model(tmp_path / "base", 4)
    return tmp_path / "base"


@needs_onnx
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("single", "dev.tsv"), ("tags", "dev.conll"), ("answer", "dev.json"), ("pronoun", "dev.jsonl")),
        *(("sentences", "dev.jsonl"), ("sentences of a text", "dev.jsonl")),
    ],
)
def test_an_export_is_scored_on_labelled_examples_on_both_sides(kind: str, name: str, tmp_path: Path) -> None:
    source = write_task(tmp_path / "model", kind)
    examples = examples_of(kind, 20)
    data = write_data(tmp_path / name, examples)
    export(source, tmp_path / "out", to="onnx", data=data, int8=True, limit=1.0)
    record = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    assert record["sample"]["digest"] == digest_file(data)
    assert record["sample"]["examples"] == 20
    result = record["files"]["model.onnx"]
    assert result["digest"] == digest_file(tmp_path / "out" / "model.onnx")
    scores, _ = load_predictor(source).evaluate(examples)
    metric = SPECS[kind].metric
    assert result["metric"]["name"] == metric
    assert result["metric"]["library"] == pytest.approx(scores[metric], abs=1e-9)
    assert result["metric"]["exported"] == pytest.approx(scores[metric], abs=1e-9)
    assert all(0 < output["largest"] < result["limits"]["largest"] == 1e-4 for output in result["outputs"].values())
    rough = record["files"]["model_int8.onnx"]
    assert rough["limits"] == {"metric_loss": 1.0}
    lost = (rough["metric"]["library"] - rough["metric"]["exported"]) / (100 if kind == "answer" else 1)
    assert rough["metric"]["loss"] == pytest.approx(lost)
    assert record["versions"].keys() >= {"bertsmith", "onnx", "onnxruntime", "torch"}


@needs_onnx
@pytest.mark.parametrize("kind", [*WITH_GRAPH, *OF_PARTS, None])
def test_every_kind_of_model_is_exported_on_built_in_sentences(kind: str | None, base: Path, tmp_path: Path) -> None:
    source = base if kind is None else write_task(tmp_path / "model", kind)
    _, lines = export(source, tmp_path / "out", to="onnx")
    rows = {"sentences": 92, "sentences of a text": 95}.get(kind or "", 96)
    assert f"compared on sentences that come with bertsmith ({rows} rows)" in lines[0]
    passport = json.loads((tmp_path / "out" / "bertsmith.json").read_text(encoding="utf-8"))
    if kind is not None:
        assert passport["spec"] == json.loads(json.dumps(SPECS[kind].to_dict()))
    assert "model.onnx" in passport["digests"]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *("model.onnx", "config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json", "README.md"),
        *("special_tokens_map.json", "bertsmith.json", "export.json"),
    }


@needs_onnx
def test_labels_of_another_tool_go_along(tmp_path: Path) -> None:
    write_task(tmp_path / "model", "tags")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "model")
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.vocabulary.save(tmp_path / "theirs" / "vocab.txt")
    export(tmp_path / "theirs", tmp_path / "out", to="onnx")
    passport = json.loads((tmp_path / "out" / "bertsmith.json").read_text(encoding="utf-8"))
    assert passport["labels"] == passport["spec"]["labels"] == ["O", "B-PER", "B-LOC"]
    assert passport["task"] == "tagging"


@needs_onnx
def test_an_encoder_for_sentences_keeps_its_pooling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "sentences"
    save_pretrained(source, untrained(CONFIG, seed=4), TOKENIZER, ModelMetadata.from_dict({}), trained=())
    (source / "bertsmith.json").unlink()
    modules = [{"idx": 0, "name": "0", "path": ""}, {"idx": 1, "name": "1", "path": "1_Pooling"}]
    (source / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")
    monkeypatch.setattr(
        "bertsmith.models.checkpoints.hub.resolve", lambda name, **_: source
    )  # the local copy of a hub id
    for to, name in (("onnx", source), ("huggingface", source), ("huggingface", "someone/sentences")):
        export(name, tmp_path / to, to=to, replace=True)
        assert json.loads((tmp_path / to / "modules.json").read_text(encoding="utf-8")) == modules
        assert (tmp_path / to / "1_Pooling" / "config.json").read_bytes() == (
            source / "1_Pooling" / "config.json"
        ).read_bytes()


@needs_onnx
def test_a_model_without_a_task_is_compared_on_texts(base: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("anna was in rome .\n\nthe film\n", encoding="utf-8")
    _, lines = export(base, tmp_path / "out", to="onnx", data=tmp_path / "texts.txt")
    assert "texts.txt (2 rows)" in lines[0]
    (tmp_path / "texts.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"texts\.txt'; found an empty file"):
        export(base, tmp_path / "other", to="onnx", data=tmp_path / "texts.txt")


def test_texts_are_read_as_everywhere(base: Path, tmp_path: Path) -> None:
    folder = load_any(base)
    text = "anna was in\u2028rome .\n \nthe film\n"
    (tmp_path / "plain.txt").write_text(text, encoding="utf-8")
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    plain, packed = (
        sample_for(folder, None, DataFile(path=tmp_path / name)).rows for name in ("plain.txt", "packed.txt.gz")
    )
    assert len(plain) == len(packed) == 2
    np.testing.assert_array_equal(plain.token_ids, packed.token_ids)
    (tmp_path / "plain.txt").write_bytes(b"the film was good\n\xff anna\n")
    with pytest.raises(InputError, match="byte 0xff in line 2, not UTF-8"):
        sample_for(folder, None, DataFile(path=tmp_path / "plain.txt"))
    coded = DataFile(path=tmp_path / "plain.txt", columns=ColumnSettings(encoding="cp1252"))
    assert len(sample_for(folder, None, coded).rows) == 2


@needs_onnx
def test_what_differs_is_not_written_and_what_was_there_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_task(tmp_path / "model", "single")
    export(source, tmp_path / "out", to="onnx")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    write = export_module.write_fp32

    def damaged(folder, kind, path):
        bias = folder.tensors["bert.layers.1.output.bias"]
        tensors = {**folder.tensors, "bert.layers.1.output.bias": bias + torch.linspace(0, 0.01, len(bias))}
        write(dataclasses.replace(folder, tensors=tensors), kind, path)

    monkeypatch.setattr(export_module, "write_fp32", damaged)
    for name, replace in (("new", False), ("out", True)):
        with pytest.raises(
            CheckpointError, match=r"logits of model\.onnx within 0\.0001 .* nothing was written"
        ) as caught:
            export(source, tmp_path / name, to="onnx", replace=replace)
        str(caught.value)
    assert not (tmp_path / "new").exists()
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    assert [file for file in tmp_path.iterdir() if file.name.endswith(".partial")] == []
    export(source, tmp_path / "new", to="onnx", limit=10.0)


@needs_onnx
def test_int8_has_a_gate_of_its_own(base: Path, tmp_path: Path) -> None:
    _, lines = export(base, tmp_path / "out", to="onnx", int8=True)
    assert [line.split(":")[0] for line in lines[1:]] == ["model.onnx", "model_int8.onnx"]
    record = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    assert record["int8_weight_bits"] in (7, 8)
    assert record["files"]["model_int8.onnx"]["limits"] == {"mean": INT8_LIMIT}
    assert record["files"]["model.onnx"]["limits"] == {"largest": 1e-4}
    sizes = [record["files"][name]["bytes"] for name in ("model.onnx", "model_int8.onnx")]
    assert sizes == [(tmp_path / "out" / name).stat().st_size for name in ("model.onnx", "model_int8.onnx")]
    with pytest.raises(CheckpointError, match=r"model_int8\.onnx within 0 .* omit `int8=True`"):
        export(base, tmp_path / "other", to="onnx", int8=True, limit=0.0)
    assert not (tmp_path / "other").exists()


def test_the_limit_of_int8_is_that_of_the_score_where_there_is_one() -> None:
    far = Difference(output="logits", values=8, largest=9.0, mean=5.0, spread=1.0)
    scored = Comparison(differences=(far,), metric="accuracy", library=0.9, exported=0.897, loss=0.003)
    assert require_near(scored, "m") == {"metric_loss": 0.004}
    assert require_near(dataclasses.replace(scored, loss=-0.1), "m") == {"metric_loss": 0.004}
    with pytest.raises(CheckpointError, match=r"accuracy of m at most 0\.002 below"):
        require_near(scored, "m", limit=0.002)
    few = dataclasses.replace(scored, loss=0.025, examples=40, changed=1)
    assert require_near(few, "m") == {"metric_loss": 0.025, "changed": 1}
    assert require_near(dataclasses.replace(few, loss=0.05), "m")["changed"] == 1, "one answer, whatever it costs"
    with pytest.raises(CheckpointError, match=r"at most 0\.025 below the library's, or at most 1 changed answer"):
        require_near(dataclasses.replace(few, loss=0.05, changed=2), "m")
    with pytest.raises(CheckpointError, match=r"accuracy of m at most 0\.004 below"):
        require_near(few, "m", limit=0.004)
    with pytest.raises(CheckpointError, match=r"within 0\.2 of their spread"):
        require_near(Comparison(differences=(far,)), "m")
    with pytest.raises(CheckpointError, match="a difference of nan"):
        require_equal(Comparison(differences=(dataclasses.replace(far, largest=float("nan")),)), "m")


@pytest.mark.parametrize("examples", [1, 12, 13, 88, 89, 250, 1000, 10_000])
def test_a_model_at_the_limit_of_int8_is_refused_in_at_most_five_of_a_hundred_samples(examples: int) -> None:
    few = chance_changes(examples, 0.004)
    assert binom.cdf(few, examples, 0.004) >= 0.95
    assert few == 1 or binom.cdf(few - 1, examples, 0.004) < 0.95, "no more than that"


@pytest.mark.parametrize("kind", ["single", "choice", "tags", "answer"])
def test_a_runner_sees_padded_batches_of_all_lengths_and_every_difference_counts(kind: str, tmp_path: Path) -> None:
    """The other side is the library itself, one row at a time."""
    folder = load_any(write_task(tmp_path / "model", kind))
    spec = spec_of(folder)
    model, outputs = library_model(folder, spec), outputs_of(spec.kind, folder.parts)
    peer = {
        "single": transformers.AutoModelForSequenceClassification,
        "choice": transformers.AutoModelForMultipleChoice,
        "tags": transformers.AutoModelForTokenClassification,
        "answer": transformers.AutoModelForQuestionAnswering,
    }[kind].from_pretrained(tmp_path / "model", attn_implementation="eager")
    seen: list[list[int]] = []
    change = {"by": 0.0}

    @torch.inference_mode()
    def run(inputs):
        assert list(inputs) == list(INPUTS)
        mask = inputs["attention_mask"].reshape(-1, inputs["attention_mask"].shape[-1])
        seen.append(mask.sum(1).tolist())
        answers = peer(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        answers = {output.name: answers[output.name].numpy().copy() for output in outputs}
        if mask.shape == (1, 1):
            answers[outputs[-1].name].reshape(-1)[-1] += change["by"]
        return answers

    sample = sample_for(folder, spec, None)
    equal = compare(folder, model, outputs, run, sample)
    assert all(difference.largest < 2e-5 for difference in equal.differences)
    longest = CONFIG.max_position_embeddings
    assert [1] in seen
    assert [longest] in seen
    assert sorted(seen[0]) == [1, 2, 5, 17, longest]
    assert sum(map(len, seen[3:])) == len(sample.rows)
    assert any(len(set(lengths)) > 1 for lengths in seen[3:])
    change["by"] = 0.5
    worse = compare(folder, model, outputs, run, sample).differences[-1]
    assert worse.largest * worse.spread == pytest.approx(0.5, abs=1e-3)


def test_rows_of_odd_lengths_stay_inside_the_model(base: Path) -> None:
    folder = load_any(base)
    rows = odd_rows(folder)
    assert rows.lengths.max() == CONFIG.max_position_embeddings
    assert (rows.token_ids.max() < CONFIG.vocab_size, set(rows.segment_ids.tolist())) == (True, {0, 1})
    small = dataclasses.replace(
        folder, config=dataclasses.replace(CONFIG, max_position_embeddings=4, type_vocab_size=1)
    )
    assert (odd_rows(small).lengths.max(), odd_rows(small).segment_ids.max()) == (4, 0)
    long = dataclasses.replace(folder, config=dataclasses.replace(CONFIG, max_position_embeddings=8192))
    assert odd_rows(long).lengths.tolist() == [1, 2, 5, 17, LONGEST_ODD]
    np.testing.assert_array_equal(rows.token_ids, odd_rows(folder).token_ids)


@pytest.mark.parametrize(
    "kind",
    [
        "single",
        "number",
        "choice",
        "on the mean",
        "on the first token",
        "on the pair",
        "choice on the mean",
        "choice on the pair",
        "tags",
        "answer",
        None,
    ],
)
def test_a_hugging_face_folder_is_run_in_transformers(kind: str | None, base: Path, tmp_path: Path) -> None:
    source = base if kind is None else write_task(tmp_path / "model", kind)
    _, lines = export(source, tmp_path / "out", to="huggingface")
    assert lines[0].endswith("tensors equal bit for bit")
    record = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    assert record["versions"]["transformers"] == transformers.__version__
    names = {
        "answer": {"start_logits", "end_logits"},
        None: {"logits", "seq_relationship_logits"},
    }.get(kind, {"logits"})
    assert record["transformers"]["outputs"].keys() == names
    assert all(0 < output["largest"] < 1e-4 for output in record["transformers"]["outputs"].values())


@pytest.mark.parametrize("kind", ["on the pair", "on texts apart"])
@pytest.mark.parametrize("to", ["huggingface", "onnx"])
def test_pairs_are_distinguished_in_an_encoder_without_segments(to: str, kind: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnx", reason="needs the extra export")
        pytest.importorskip("onnxruntime", reason="needs the extra export")
    spec = SPECS[kind]
    model = EncoderForTask(new_encoder(config_of("distilbert")), task_for(spec).head, seed=4)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    save_pretrained(tmp_path / "model", model, TOKENIZER, ModelMetadata.from_dict(info), trained=("classifier",))
    if kind == "on texts apart" and to == "huggingface":
        with pytest.raises(
            CheckpointError, match=r'reads the two texts of a row apart; .* `to="onnx"`, which is exact'
        ):
            export(tmp_path / "model", tmp_path / "out", to=to)
        return
    export(tmp_path / "model", tmp_path / "out", to=to)
    record = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    result = record["transformers"] if to == "huggingface" else record["files"]["model.onnx"]
    assert 0 < result["outputs"]["logits"]["largest"] < 1e-4
    if to == "onnx":
        onnx = importlib.import_module("onnx")
        assert [node.name for node in onnx.load(tmp_path / "out" / "model.onnx").graph.input] == [
            "input_ids",
            "attention_mask",
            "token_type_ids",
        ]
        assert "`token_type_ids` is 0 for the tokens of the first" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
def test_every_form_of_the_encoder_passes_the_gate_of_transformers(
    positions: str, is_causal: bool, tmp_path: Path
) -> None:
    changes = {"position_embedding_type": positions, "is_causal": is_causal, "hidden_act": "gelu_new"}
    config = dataclasses.replace(CONFIG, **changes)
    save_pretrained(
        tmp_path / "model", untrained(config, seed=4), TOKENIZER, ModelMetadata.from_dict({}), trained=("pooler",)
    )
    export(tmp_path / "model", tmp_path / "out", to="huggingface")
    assert (tmp_path / "out" / "export.json").exists()


@pytest.mark.parametrize("to", ["huggingface", "google"])
def test_a_tensor_that_comes_back_otherwise_is_named(
    to: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"huggingface": "write_model_folder", "google": "write_google"}[to]
    write = getattr(rewriting, name)

    def damaged(path, *, tensors, **others):
        changed = {name: value + 1 if name in ("mlm.bias", "nsp.bias") else value for name, value in tensors.items()}
        write(path, tensors=changed, **others)

    monkeypatch.setattr(rewriting, name, damaged)
    with pytest.raises(
        CheckpointError, match=r"different values in mlm\.bias; different values in nsp\.bias"
    ) as caught:
        export(base, tmp_path / "out", to=to)
    str(caught.value)
    assert not (tmp_path / "out").exists()


def test_without_transformers_the_tensors_alone_are_compared(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_readback.importlib.util, "find_spec", lambda name: None)
    _, lines = export(base, tmp_path / "out", to="huggingface")
    assert lines[1] == "transformers is not installed: nothing was run in transformers"
    with pytest.raises(ConfigError, match="transformers is not installed"):
        export(base, tmp_path / "other", to="huggingface", data=tmp_path / "texts.txt")
    assert not (tmp_path / "other").exists()


def test_a_model_without_a_vocabulary_becomes_a_folder_but_no_onnx(base: Path, tmp_path: Path) -> None:
    for file in ("vocab.txt", "tokenizer.json"):
        (base / file).unlink()
    _, lines = export(base, tmp_path / "out", to="huggingface")
    assert lines[1].startswith("there is no vocabulary")
    pytest.importorskip("onnx", reason="needs the extra export")
    with pytest.raises(CheckpointError, match=r"no vocab\.txt"):
        export(base, tmp_path / "other", to="onnx")
    assert not (tmp_path / "other").exists()


def test_all_faults_of_the_tensors_are_reported_at_once(base: Path, tmp_path: Path) -> None:
    tensors = dict(huggingface.read_weights(base))
    del tensors["bert.encoder.layer.0.output.dense.bias"], tensors["bert.encoder.layer.1.output.dense.bias"]
    tensors["bert.pooler.dense.weight"] = torch.zeros(32, 7)
    tensors["adapter.weight"] = torch.zeros(3)
    write_safetensors(base / "model.safetensors", tensors)
    with pytest.raises(CheckpointError) as caught:
        export(base, tmp_path / "out", to="huggingface")
    text = str(caught.value)
    for part in (
        "no bert.encoder.layer.0.output.dense.bias",
        "no bert.encoder.layer.1.output.dense.bias",
        "bert.pooler.dense.weight is [32, 7] instead of [32, 32]",
        "unknown adapter.weight",
    ):
        assert part in text
    assert not (tmp_path / "out").exists()


@needs_onnx
def test_a_dev_file_of_another_task_is_refused(tmp_path: Path) -> None:
    source = write_task(tmp_path / "model", "single")
    data = write_data(tmp_path / "dev", examples_of("answer", 4))
    with pytest.raises(InputError, match="dev"):
        export(source, tmp_path / "out", to="onnx", data=data)
    strange = file_with(tmp_path / "strange.tsv", "text\tlabel\nthe film\tupwards\na plot\tsideways\n")
    with pytest.raises(InputError, match="sideways"):
        export(source, tmp_path / "out", to="onnx", data=strange)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "google", "int8": True}, '`int8=True` needs `to="onnx"`'),
        ({"to": "huggingface", "int8": True}, '`int8=True` needs `to="onnx"`'),
        ({"to": "google", "limit": -0.1}, "limit must be at least 0, not -0.1"),
        ({"to": "onnx", "task": "sst-2"}, "`task` needs `data`"),
        ({"to": "google", "text_column": "body", "tag_column": 1}, "`text_column` needs `data`; "),
        ({"to": "google", "data": Path("dev.tsv"), "task": "sentimant"}, "did you mean 'sentiment'"),
        ({"to": "onnx", "limit": -1.0}, "limit must be at least 0, not -1.0"),
        ({"to": "onnx", "limit": float("nan")}, "limit must be a finite number at least 0, not nan"),
        ({"to": "onyx"}, "did you mean 'onnx'"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_read(
    options: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        export(tmp_path / "absent", tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


@needs_onnx
def test_a_task_of_vectors_by_a_pooler_that_reads_the_last_token_is_exported_without_it(tmp_path: Path) -> None:
    spec = dataclasses.replace(SPECS["replies by vectors"], reads="pooler")
    model = EncoderForTask(new_encoder(dataclasses.replace(CONFIG, is_causal=True)), task_for(spec).head, seed=4)
    info = {"task": spec.kind, "spec": spec.to_dict()}
    save_pretrained(tmp_path / "model", model, TOKENIZER, ModelMetadata.from_dict(info), trained=("pooler",))
    export(tmp_path / "model", tmp_path / "out", to="onnx")
    with pytest.raises(
        CheckpointError, match=r"expected a fine-tuned model in .*; found an export without a task head"
    ):
        load_predictor(tmp_path / "out")
