"""exported = trained: onnxruntime on padded batches gives the outputs of the library on flat batches."""

import dataclasses
import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import transformers

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.export import onnx_files as onnx_export
from bertsmith.inference.export.conversion import export
from bertsmith.inference.export.onnx_files import onnx_model, write_fp32, write_int8
from bertsmith.inference.export.onnx_graph import graph_of
from bertsmith.inference.export.onnx_message import OPSET
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.row_vectors import pooler_of_rows
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import ACTIVATIONS, POSITIONS, EncoderConfig
from bertsmith.models.parts.head_inputs import OF_TWO_TEXTS
from bertsmith.tasks.encoding import onnx_session
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.onnx_session import Session, needs_reduced_range, outputs_of
from bertsmith.tasks.encoding.units import EncodedExamples
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from model.examples import shake
from processors import pretend
from tasks.architecture_samples import OTHERS, config_of, tokenizer_of
from tasks.task_samples import CONFIG, OF_PARTS, SPECS, TOKENIZER, WITH_GRAPH, examples_of

onnx = pytest.importorskip("onnx", reason="needs the extra export")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")

NEAR = {"rtol": 0, "atol": 1e-5}
LENGTHS = [5, 1, CONFIG.max_position_embeddings, 17, 2]
PARTS = {
    "pre-trained": ("pooler", "mlm", "nsp"),
    "masks only": ("mlm",),
    "next sentence only": ("pooler", "nsp"),
    "encoder": ("pooler",),
    "bare encoder": (),
}


def task_folder(
    path: Path, kind: str, config: EncoderConfig = CONFIG, tokenizer: Tokenizer = TOKENIZER
) -> tuple[ModelFolder, EncoderForTask]:
    spec = SPECS[kind]
    task = task_for(spec)
    model = EncoderForTask(new_encoder(config), task.head, seed=4).eval()
    shake(model)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    save_pretrained(
        path,
        model,
        tokenizer,
        ModelMetadata.from_dict(info),
        trained=(task.head.part, *(["pooler"] if task.head.uses_pooler(config) else [])),
    )
    return load_any(path), model


def padded(rows: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Padded rows of ids and segments; the ids at the padding would change the outputs if they were not masked."""
    shape = len(rows), max(len(ids) for ids, _ in rows)
    result = {
        "input_ids": np.full(shape, 7),
        "attention_mask": np.zeros(shape, int),
        "token_type_ids": np.ones(shape, int),
    }
    for number, (ids, segments) in enumerate(rows):
        result["input_ids"][number, : len(ids)] = ids
        result["token_type_ids"][number, : len(ids)] = segments
        result["attention_mask"][number, : len(ids)] = 1
    return {name: array.astype(np.int64) for name, array in result.items()}


def random_rows(lengths: list[int] = LENGTHS, config: EncoderConfig = CONFIG) -> list[tuple[np.ndarray, np.ndarray]]:
    draw, segments = np.random.default_rng(3), max(config.type_vocab_size, 1)
    return [(draw.integers(config.vocab_size, size=n), np.sort(draw.integers(segments, size=n))) for n in lengths]


def flat(rows: list[tuple[np.ndarray, np.ndarray]]) -> Batch:
    ids, segments = (np.concatenate(part) for part in zip(*rows, strict=True))
    return Batch.from_flat(ids, segments, [len(ids) for ids, _ in rows])


def onnx_logits(run, features: EncodedExamples, kind: str) -> np.ndarray:
    """onnxruntime's logits [R, K] at the positions that our head uses, from padded batches of three units."""
    per_row = []
    starts = np.cumsum(features.rows_per_unit) - features.rows_per_unit
    for first in range(0, len(features), 3):
        units = range(first, min(first + 3, len(features)))
        numbers = [int(starts[unit]) + k for unit in units for k in range(int(features.rows_per_unit[unit]))]
        inputs = padded([features.rows.row(number) for number in numbers])
        if SPECS[kind].kind == "choice":
            count = int(features.rows_per_unit[first])
            inputs = {name: array.reshape(-1, count, array.shape[1]) for name, array in inputs.items()}
        result = run(inputs)
        if kind in ("answer", "answer or none"):
            both = np.stack([result["start_logits"], result["end_logits"]], -1)
            per_row += [row[: features.lengths[number]] for row, number in zip(both, numbers, strict=True)]
        elif kind == "tags":
            per_row += [row[: features.lengths[n]] for row, n in zip(result["logits"], numbers, strict=True)]
        elif SPECS[kind].kind == "choice":
            assert result["logits"].shape == (len(units), count)
            per_row += list(result["logits"].reshape(-1, 1, 1))
        else:
            per_row += list(result["logits"][:, None])
    whole = np.concatenate(per_row)
    return whole[features.read] if kind == "tags" else whole


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", WITH_GRAPH)
def test_onnx_gives_the_logits_of_the_library_for_every_kind_of_task(
    kind: str, is_causal: bool, tmp_path: Path
) -> None:
    require_same_logits(kind, dataclasses.replace(CONFIG, is_causal=is_causal), TOKENIZER, tmp_path)


@pytest.mark.parametrize("kind", ["single", "on three vectors", "on texts apart", "choice", "tags", "answer"])
@pytest.mark.parametrize("architecture", OTHERS)
def test_onnx_gives_the_logits_of_the_library_for_every_architecture(
    architecture: str, kind: str, tmp_path: Path
) -> None:
    # RoBERTa and MPNet have one segment for both texts, which tells them apart in no head.
    if SPECS[kind].reads in OF_TWO_TEXTS and not tokenizer_of(architecture).template.has_segments:
        kind = "pair"
    require_same_logits(kind, config_of(architecture), tokenizer_of(architecture), tmp_path)


@pytest.mark.parametrize("architecture", ["bert", "bert, left to right", "roberta", "modernbert"])
@pytest.mark.parametrize("kind", OF_PARTS)
def test_onnx_gives_the_numbers_of_sentences_and_of_mentions(kind: str, architecture: str, tmp_path: Path) -> None:
    name, _, is_causal = architecture.partition(", ")
    config = dataclasses.replace(CONFIG, is_causal=bool(is_causal)) if name == "bert" else config_of(name)
    tokenizer = TOKENIZER if name == "bert" else tokenizer_of(name)
    folder, model = task_folder(tmp_path / "model", kind, config, tokenizer)
    write_fp32(folder, SPECS[kind].kind, tmp_path / "model.onnx")
    features = task_for(SPECS[kind]).encode(examples_of(kind, 8), tokenizer)
    ours = task_logits(model, features, choose("cpu", "fp32"))
    assert ours.std() > 100 * NEAR["atol"], "a model with constant output proves nothing"
    rows = [features.rows.row(number) for number in range(len(features.rows))]
    inputs = padded(rows)
    begins = [features.read[(features.read >= first) & (features.read < past)] - first
              for first, past in itertools.pairwise(features.rows.offsets.tolist())]  # fmt: skip
    run = Session(tmp_path / "model.onnx")
    if kind in ("pronoun", "nested", "by name"):
        logits = run(inputs)["logits"]
        theirs = np.concatenate([logits[row, places] for row, places in enumerate(begins)])
    else:
        sentences, done = np.zeros_like(inputs["input_ids"]), 0
        for row, places in enumerate(begins):
            within = np.searchsorted(places, np.arange(sentences.shape[1]), side="right") - 1
            sentences[row] = done + within  # the padding has the number of a sentence, too
            done += len(places)
        texts = np.repeat(features.example_of_row, [len(places) for places in begins])
        theirs = run({**inputs, "sentence_ids": sentences, "text_ids": 7 * texts})["logits"]
        assert len(rows) > len(features) or kind == "sentences", "texts have several windows"
    np.testing.assert_allclose(theirs, ours, **NEAR)


def require_same_logits(kind: str, config: EncoderConfig, tokenizer: Tokenizer, path: Path) -> None:
    folder, model = task_folder(path / "model", kind, config, tokenizer)
    write_fp32(folder, SPECS[kind].kind, path / "model.onnx")
    features = task_for(SPECS[kind]).encode(examples_of(kind, 8), tokenizer)
    ours = task_logits(model, features, choose("cpu", "fp32"))
    theirs = onnx_logits(Session(path / "model.onnx"), features, kind)
    assert ours.std() > 100 * NEAR["atol"], "a model with constant output proves nothing"
    np.testing.assert_allclose(theirs, ours, **NEAR)


@pytest.mark.parametrize(
    ("architecture", "parts"),
    [
        *(pytest.param("bert", parts, id=f"bert-{name}") for name, parts in PARTS.items()),
        *((architecture, parts) for architecture in OTHERS for parts in (("pooler", "mlm"), ())),
    ],
)
def test_onnx_gives_the_outputs_of_a_model_without_a_task(
    architecture: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    config = config_of(architecture)
    model = untrained(config, seed=4).eval()
    shake(model)
    save_pretrained(tmp_path / "model", model, tokenizer_of(architecture), ModelMetadata.from_dict({}), trained=parts)
    write_fp32(load_any(tmp_path / "model"), None, tmp_path / "model.onnx")
    rows = random_rows([5, 1, config.max_tokens, 17, 2], config)
    inputs = padded(rows)
    result = Session(tmp_path / "model.onnx")(inputs)
    assert list(result) == [output.name for output in outputs_of(None, parts)]
    batch, real = flat(rows), inputs["attention_mask"].astype(bool)
    every, first = torch.arange(batch.num_tokens), batch.first_positions
    with torch.inference_mode():
        hidden = model.encoder(batch)
        output = model(batch, masked=every, first=first if "nsp" in parts else None)
        pooled = model.encoder.pool(hidden[first])
    np.testing.assert_allclose(result["last_hidden_state"][real], hidden, **NEAR)
    if "pooler" in parts:
        np.testing.assert_allclose(result["pooler_output"], pooled, **NEAR)
    if "mlm" in parts:
        np.testing.assert_allclose(result["logits"][real], output.mlm_logits, **NEAR)
    if "nsp" in parts:
        name = "seq_relationship_logits" if "mlm" in parts else "logits"
        np.testing.assert_allclose(result[name], output.nsp_logits, **NEAR)


FORMS = [
    *(("bert", {"hidden_act": name}) for name in ACTIVATIONS),
    *(
        ("bert", {"position_embedding_type": name, "is_causal": causal})
        for name in POSITIONS
        for causal in (False, True)
    ),
    ("modernbert", {"num_hidden_layers": 2}),  # the last one is local
    ("modernbert", {"classifier_pooling": "mean", "hidden_act": "gelu_new"}),
    ("modernbert", {"local_attention": 64, "global_rope_theta": 500.0}),
    ("modernbert", {"max_position_embeddings": 900, "local_attention": 16}),
    *(("eurobert", {"classifier_pooling": name}) for name in ("bos", "mean", "late")),
    ("eurobert", {"num_key_value_heads": 1, "rope_factor": 2.0, "num_hidden_layers": 1}),
    ("mpnet", {"max_position_embeddings": 302}),  # distances beyond the last range
    ("mpnet", {"relative_attention_num_buckets": 40, "num_hidden_layers": 1}),
    ("deberta-v2", {"share_att_key": True, "norm_rel_ebd": "none", "num_hidden_layers": 1}),
    ("deberta-v2", {"pos_att_type": "c2p", "position_buckets": 0, "position_biased_input": True}),
    ("deberta-v2", {"pos_att_type": "p2c", "conv_kernel_size": 3, "conv_act": "gelu"}),
    ("deberta-v2", {"conv_kernel_size": 5, "num_hidden_layers": 1, "type_vocab_size": 2}),
    ("deberta-v2", {"relative_attention": False}),
]


@pytest.mark.parametrize(("architecture", "changes"), FORMS, ids=str)
def test_every_form_of_the_encoder_is_the_same_in_onnx(
    architecture: str, changes: dict[str, object], tmp_path: Path
) -> None:
    config = dataclasses.replace(config_of(architecture), **changes)
    model = new_encoder(config).eval()
    shake(model)
    tensors = {f"bert.{name}": tensor for name, tensor in model.state_dict().items()}
    onnx.save_model(onnx_model(graph_of(config, tensors, None)), tmp_path / "model.onnx")
    rows = random_rows([5, 1, config.max_tokens, 17, 2], config)
    inputs, batch = padded(rows), flat(rows)
    result = Session(tmp_path / "model.onnx")(inputs)
    with torch.inference_mode():
        hidden = model(batch)
    np.testing.assert_allclose(result["last_hidden_state"][inputs["attention_mask"].astype(bool)], hidden, **NEAR)
    # The last layer of a pooled head computes only the position that represents a row.
    classifier = {"classifier.weight": torch.eye(2, config.hidden_size), "classifier.bias": torch.zeros(2)}
    onnx.save_model(onnx_model(graph_of(config, tensors | classifier, "classification")), tmp_path / "pooled.onnx")
    with torch.inference_mode():
        if config.pools_mean:
            pooled = pooler_of_rows(model, hidden, batch.lengths)[:, :2]
        else:
            pooled = model.pool(model.read_of_rows(batch).pick(hidden))[:, :2]
    np.testing.assert_allclose(Session(tmp_path / "pooled.onnx")(inputs)["logits"], pooled, **NEAR)


@pytest.mark.parametrize("lengths", [[1], [9], [CONFIG.max_position_embeddings]])
def test_a_batch_of_one_is_answered_as_among_others(lengths: list[int], tmp_path: Path) -> None:
    folder, _ = task_folder(tmp_path / "model", "single")
    write_fp32(folder, "classification", tmp_path / "model.onnx")
    run = Session(tmp_path / "model.onnx")
    rows = random_rows(lengths)
    together = run(padded([*rows, *random_rows()]))["logits"][:1]
    np.testing.assert_allclose(run(padded(rows))["logits"], together, **NEAR)


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "mpnet"])
def test_a_row_that_is_longer_than_the_model_is_refused_and_not_cut(architecture: str, tmp_path: Path) -> None:
    config = config_of(architecture)
    folder, _ = task_folder(tmp_path / "model", "single", config, tokenizer_of(architecture))
    write_fp32(folder, "classification", tmp_path / "model.onnx")
    run = Session(tmp_path / "model.onnx")
    assert run(padded(random_rows([config.max_tokens], config)))["logits"].shape == (1, 2)
    with pytest.raises(CheckpointError, match=r"model\.onnx to run"):
        run(padded(random_rows([config.max_tokens + 1], config)))


def test_names_and_axes_are_those_that_other_tools_ask_for(tmp_path: Path) -> None:
    axes = {
        "single": {"logits": ["batch", 2]},
        "choice": {"logits": ["batch", "choices"]},
        "tags": {"logits": ["batch", "sequence", 3]},
        "answer": {"start_logits": ["batch", "sequence"], "end_logits": ["batch", "sequence"]},
    }
    for kind, expected in axes.items():
        folder, _ = task_folder(tmp_path / kind, kind)
        graph = onnx_model(graph_of(folder.config, folder.tensors, SPECS[kind].kind))
        onnx.checker.check_model(graph, full_check=True)
        assert [(opset.domain, opset.version) for opset in graph.opset_import] == [("", OPSET)]

        def shape(value: object) -> list[object]:
            return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]

        assert {value.name: shape(value) for value in graph.graph.output} == expected
        outer = ["batch", "choices"] if SPECS[kind].kind == "choice" else ["batch"]
        inputs = {value.name: shape(value) for value in graph.graph.input}
        assert inputs == {name: [*outer, "sequence"] for name in onnx_session.INPUTS}


def test_the_decoder_is_the_word_table_stored_once(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", untrained(CONFIG, seed=4), TOKENIZER, ModelMetadata.from_dict({}))
    folder = load_any(tmp_path / "model")

    def size(tied: bool) -> int:
        graph = onnx_model(graph_of(folder.config, folder.tensors, None, tied=tied)).graph
        return sum(len(array.raw_data) for array in graph.initializer)

    assert size(tied=False) - size(tied=True) == 4 * CONFIG.vocab_size * CONFIG.hidden_size


def test_weights_that_are_too_large_for_one_file_are_next_to_it(tmp_path: Path) -> None:
    folder, _ = task_folder(tmp_path / "model", "single")
    rows = padded(random_rows())
    write_fp32(folder, "classification", tmp_path / "whole.onnx")
    write_fp32(folder, "classification", tmp_path / "model.onnx", largest_file=1000)
    assert (tmp_path / "model.onnx.data").stat().st_size > (tmp_path / "model.onnx").stat().st_size
    whole, other = (Session(tmp_path / f"{name}.onnx")(rows)["logits"] for name in ("whole", "model"))
    np.testing.assert_array_equal(whole, other)
    write_int8(folder, "classification", tmp_path / "int8.onnx", reduced=True, largest_file=1000)
    assert (tmp_path / "int8.onnx.data").exists()
    assert np.isfinite(Session(tmp_path / "int8.onnx")(rows)["logits"]).all()
    assert not list(tmp_path.glob("plain-*"))


def test_the_slow_fusions_are_those_of_the_installed_onnxruntime(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", untrained(CONFIG, seed=4), TOKENIZER, ModelMetadata.from_dict({}))
    write_int8(load_any(tmp_path / "model"), None, tmp_path / "int8.onnx", reduced=False)

    def fused(disabled: tuple[str, ...]) -> bool:
        """Whether the graph that runs has a fused sum and norm."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns that the file depends on the machine
        options.optimized_model_filepath = str(tmp_path / "runs.onnx")
        onnxruntime.InferenceSession(
            tmp_path / "int8.onnx", options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
        )
        nodes = onnx.load(tmp_path / "runs.onnx").graph.node
        return any(node.op_type == "SkipLayerNormalization" for node in nodes)

    assert fused(())
    assert not fused(onnx_session.SLOW_FUSIONS)


@pytest.mark.parametrize("reduced", [True, False])
@pytest.mark.parametrize("architecture", ["bert", *OTHERS])
def test_int8_holds_all_matrices_in_a_byte_and_says_nearly_the_same(
    architecture: str, reduced: bool, tmp_path: Path
) -> None:
    config = config_of(architecture)
    model = untrained(config, seed=4)
    save_pretrained(tmp_path / "model", model, tokenizer_of(architecture), ModelMetadata.from_dict({}))
    folder = load_any(tmp_path / "model")
    write_fp32(folder, None, tmp_path / "model.onnx")
    write_int8(folder, None, tmp_path / "int8.onnx", reduced=reduced)
    graph = onnx.load(tmp_path / "int8.onnx").graph
    large = [matrix for matrix in graph.initializer if len(matrix.dims) == 2]
    real = [matrix.name for matrix in large if matrix.data_type == onnx.TensorProto.FLOAT]
    # Positions, of all kinds, and segments are small tables that are used in fp32.
    assert [name for name in real if not any(word in name for word in ("position", "rotary", "segment"))] == []
    weights = [onnx.numpy_helper.to_array(matrix) for matrix in large if matrix.data_type == onnx.TensorProto.INT8]
    assert max(int(np.abs(weight.astype(int)).max()) for weight in weights) == (64 if reduced else 127)
    rows = padded(random_rows([5, 1, config.max_tokens, 17, 2], config))
    exact, rough = (Session(tmp_path / f"{name}.onnx")(rows) for name in ("model", "int8"))
    real_tokens = rows["attention_mask"].astype(bool)
    apart = np.abs(exact["logits"] - rough["logits"])[real_tokens].mean() / exact["logits"][real_tokens].std()
    # Where sums of the largest weights are cut to 16 bits, 8-bit weights are not close, and loading them says so.
    assert 0 < apart < (0.1 if reduced or not needs_reduced_range() else 0.3)


@pytest.mark.parametrize(
    ("flags", "reduced"),
    [
        ("fpu avx2 fma", True),
        ("fpu avx2 avx512_vnni", False),
        ("avx_vnni", False),
        ("avx_vnni_int8", False),
        ("amx_int8", False),
        ("", True),
    ],
)
def test_the_range_of_weights_is_reduced_where_the_processor_would_cut_sums(
    flags: str, reduced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, *flags.split())
    assert needs_reduced_range() is reduced


def test_the_folder_is_complete_for_transformers(tmp_path: Path) -> None:
    task_folder(tmp_path / "model", "single")
    export(tmp_path / "model", tmp_path / "out", to="onnx")
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert there("anna was good")["input_ids"] == [
        TOKENIZER.vocabulary.cls_id,
        *TOKENIZER.encode("anna was good"),
        TOKENIZER.vocabulary.sep_id,
    ]
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.id2label == {0: "negative", 1: "positive"}
    assert config.architectures == ["BertForSequenceClassification"]
    inputs = there(["anna was good", "the film"], padding=True, return_tensors="np")
    assert Session(tmp_path / "out" / "model.onnx")(dict(inputs))["logits"].shape == (2, 2)


def test_a_missing_package_is_one_line_that_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task_folder(tmp_path / "model", "single")

    present = onnx_session.importlib.import_module

    def absent(name: str) -> ModuleType:
        if name.startswith("onnx"):
            raise ImportError(name)
        return present(name)

    monkeypatch.setattr(onnx_session.importlib, "import_module", absent)
    with pytest.raises(ConfigError, match=r"found no onnx; .*bertsmith\[export\]"):
        export(tmp_path / "model", tmp_path / "out", to="onnx")
    assert not (tmp_path / "out").exists()


def test_a_graph_that_is_no_valid_onnx_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = task_folder(tmp_path / "model", "single")
    graph = onnx_model(graph_of(folder.config, folder.tensors, "classification"))
    graph.graph.node[0].input[0] = "nowhere"
    monkeypatch.setattr(onnx_export, "onnx_model", lambda _: graph)
    with pytest.raises(CheckpointError, match=r"valid ONNX in model\.onnx"):
        write_fp32(folder, "classification", tmp_path / "model.onnx")
