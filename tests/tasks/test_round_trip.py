"""exported = trained through the public entrances of other libraries: the same numbers there, or a refusal.

Padded batches of texts of different lengths, in two loads that must agree, for kinds of task, heads and architectures.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer

import bertsmith
from bertsmith.app.library.inspection import inspect_model
from bertsmith.base.core.errors import CheckpointError
from bertsmith.inference.export.conversion import export
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import CODE, ModelMetadata
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from tasks.architecture_samples import OTHERS, change_json, encoder_of, tokenizer_of
from tasks.task_samples import SPECS, examples_of

TEXTS = (
    "the good film was bad .",
    "in",
    "the plots of anna and bert in romes was awful and poor ?",
    "who was carl",
    "great and fine",
)
SECONDS = ("a film", "the plot was poor and bad .", "it", "anna was good in oslo", "lima ?")
TOLERANCE = 2e-5
BIO = dataclasses.replace(SPECS["tags"], labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))
# bertsmith chooses among the sequences that the scheme allows, transformers one tag after another
FREE_TAGS = dataclasses.replace(BIO, settings=dataclasses.replace(BIO.settings, constrained_tags=False))
CALIBRATED = dataclasses.replace(SPECS["on the mean"], temperature=2.5)
BOTH_ORDERS = dataclasses.replace(
    SPECS["pair"], settings=dataclasses.replace(SPECS["pair"].settings, both_orders=True), reads="mean"
)
OPENED = {
    name: SPECS[name]
    for name in (
        *("single", "several labels", "number", "pair"),
        *("on the mean", "on three vectors", "on the first token", "on the pair"),
        *("choice", "choice on the mean", "choice on the pair", "answer"),
    )
} | {"tags": FREE_TAGS, "calibrated": CALIBRATED}
ONLY_HERE = {
    name: SPECS[name]
    for name in (
        *("windows", "windows of a pair", "windows on the mean"),
        *("hierarchical", "hierarchical by a BiLSTM", "on texts apart", "choice on texts apart"),
    )
} | {"both orders": BOTH_ORDERS, "tags by a BiLSTM": dataclasses.replace(FREE_TAGS, reads="bilstm", bilstm_cells=8)}
LEFT_TO_RIGHT = ", left to right"
ON_OTHERS = ("single", "number", "on the mean", "on three vectors", "choice on the mean", "tags", "answer")
EVERYWHERE = [
    *(("bert", kind) for kind in OPENED),
    *((architecture, kind) for architecture in (*OTHERS, "openai-gpt") for kind in ON_OTHERS),
    *((f"bert{LEFT_TO_RIGHT}", kind) for kind in ("on three vectors", "on the first token", "tags")),
    *((architecture, "on the pair") for architecture in ("distilbert", "electra", "modernbert")),
]
ENTRANCES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "choice": "feature-extraction",
}
AUTO = sorted(name for name in dir(transformers) if name.startswith("AutoModel"))


@pytest.fixture(autouse=True)
def _quiet(quiet_transformers: None) -> None:
    pass


def write(folder: Path, spec: TaskSpec, architecture: str = "bert") -> Path:
    """A model folder whose parameters, biases and norms too, are all at random."""
    torch.manual_seed(1)
    task = task_for(spec)
    encoder = encoder_of(architecture.removesuffix(LEFT_TO_RIGHT))
    if architecture.endswith(LEFT_TO_RIGHT):
        encoder = new_encoder(dataclasses.replace(encoder.config, is_causal=True))
    model = EncoderForTask(encoder, task.head, seed=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    info = ModelMetadata.from_dict({"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()})
    parts = (task.head.part, *(["pooler"] if task.head.uses_pooler(model.config) else []))
    save_pretrained(folder, model, tokenizer_of(architecture.removesuffix(LEFT_TO_RIGHT)), info, trained=parts)
    return folder


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def needs_code(folder: Path) -> bool:
    return "auto_map" in config_of(folder)


def auto_class(folder: Path) -> Any:
    kinds = {"classification": "SequenceClassification", "regression": "SequenceClassification"}
    kinds |= {"choice": "MultipleChoice", "tagging": "TokenClassification", "span": "QuestionAnswering"}
    task = json.loads((folder / "bertsmith.json").read_text(encoding="utf-8"))["task"]
    return getattr(transformers, f"AutoModelFor{kinds[task]}")


def of_whole_texts(folder: Path, spec: TaskSpec) -> Iterator[tuple[Any, Any]]:
    """What `pipeline` and bertsmith give for each text: probabilities by label, or the number."""
    pipe = transformers.pipeline(
        "text-classification", str(folder), trust_remote_code=needs_code(folder), top_k=None, device="cpu"
    )
    items = [{"text": a, "text_pair": b} for a, b in zip(TEXTS, SECONDS, strict=True)] if spec.pair else list(TEXTS)
    there = [{record["label"]: record["score"] for record in output} for output in pipe(items, batch_size=len(TEXTS))]
    model = bertsmith.load(folder, device="cpu")
    texts = list(zip(TEXTS, SECONDS, strict=True)) if spec.pair else list(TEXTS)
    if spec.kind == "regression":
        yield [list(output.values()) for output in there], [[prediction.value] for prediction in model.score(texts)]
        return
    yield (
        [[output[label] for label in spec.labels] for output in there],
        [prediction.probabilities for prediction in model.classify(texts)],
    )
    assert [max(output, key=output.get) for output in there] == [
        spec.labels[int(np.argmax(prediction.probabilities))] for prediction in model.classify(texts)
    ]


def of_choices(folder: Path, spec: TaskSpec) -> Iterator[tuple[Any, Any]]:
    examples = examples_of("choice", 5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    firsts = [example.context for example in examples for _ in example.endings]
    inputs = tokenizer(
        firsts, [end for example in examples for end in example.endings], padding=True, return_tensors="pt"
    )
    model = auto_class(folder).from_pretrained(folder, trust_remote_code=needs_code(folder)).eval()
    with torch.inference_mode():
        scores = model(**{name: values.unflatten(0, (5, 3)) for name, values in inputs.items()}).logits.softmax(-1)
    yield scores.tolist(), [prediction.probabilities for prediction in load_predictor(folder).predict(examples)]


def of_answers(folder: Path, spec: TaskSpec) -> Iterator[tuple[Any, Any]]:
    examples = examples_of("answer", 5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [example.question for example in examples], [example.context for example in examples]
    inputs = tokenizer(*texts, padding=True, return_tensors="pt")
    model = auto_class(folder).from_pretrained(folder, trust_remote_code=needs_code(folder)).eval()
    with torch.inference_mode():
        output = model(**inputs)
    real = inputs["attention_mask"].bool()
    predictor = load_predictor(folder)
    features = predictor.task.encode(examples, predictor.tokenizer)
    ours = task_logits(predictor.model, dataclasses.replace(features, read=None), predictor.runtime)
    yield torch.stack([output.start_logits[real], output.end_logits[real]], -1).tolist(), ours.tolist()


def of_entities(folder: Path, spec: TaskSpec) -> Iterator[tuple[Any, Any]]:
    """The entities of `pipeline` with the strategy of the card, and those of bertsmith."""
    pipe = transformers.pipeline(
        "token-classification", str(folder), trust_remote_code=needs_code(folder), aggregation_strategy="first",
        device="cpu",
    )  # fmt: skip
    model = bertsmith.load(folder, device="cpu")
    by_spaces = "put spaces around punctuation" in (folder / "README.md").read_text(encoding="utf-8")
    space = " " if "in front of the text" in (folder / "README.md").read_text(encoding="utf-8") else ""
    assert by_spaces == (not isinstance(model.tokenizer, WordPieceTokenizer))
    for text in TEXTS if by_spaces else [text.replace(" .", ".").replace(" ?", "?") for text in TEXTS]:
        text = f"{space}{text}"
        entities = pipe(text)
        (here,) = model.tag([text])
        # Byte-level pieces begin with the space in front of a word.
        places = [
            (entity["end"], text[entity["start"] : entity["end"]].strip(), entity["entity_group"])
            for entity in entities
        ]
        assert places == [
            (entity.characters[1], entity.text, entity.type) for entity in here.entities if entity.characters
        ]
        for predicted, entity in zip(entities, here.entities, strict=True):
            yield predicted["score"], np.mean(here.probabilities[entity.start : entity.end])


COMPARED = {
    "classification": of_whole_texts,
    "regression": of_whole_texts,
    "choice": of_choices,
    "span": of_answers,
    "tagging": of_entities,
}


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize(("architecture", "kind"), EVERYWHERE)
def test_two_loads_in_transformers_give_the_numbers_of_bertsmith(architecture: str, kind: str, tmp_path: Path) -> None:
    spec = OPENED[kind]
    folder = write(tmp_path / "model", spec, architecture)
    first, second = (list(COMPARED[spec.kind](folder, spec)) for _ in range(2))
    assert [there for there, _ in first] == [there for there, _ in second]
    for there, here in first:
        np.testing.assert_allclose(there, here, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [("bert", "on the mean"), ("bert", "choice on the pair"), ("roberta", "number"), ("openai-gpt", "tags")],
)
def test_without_trust_every_entrance_refuses_code_and_with_it_no_class_guesses(
    architecture: str, kind: str, tmp_path: Path
) -> None:
    spec = dataclasses.replace(OPENED[kind], reads="mean" if kind == "number" else OPENED[kind].reads)
    folder = write(tmp_path / "model", spec, architecture)
    for name in ("AutoConfig", *AUTO):
        with pytest.raises(ValueError, match="trust_remote_code"):
            getattr(transformers, name).from_pretrained(folder, trust_remote_code=False)
    with pytest.raises(ValueError, match="trust_remote_code"):
        transformers.pipeline(ENTRANCES[spec.kind], str(folder), device="cpu")
    for entrance in (SentenceTransformer, CrossEncoder):
        with pytest.raises(ValueError, match="trust_remote_code"):
            entrance(str(folder), device="cpu")
    named = config_of(folder)["auto_map"]
    for name in AUTO:
        if name in named:
            loaded = getattr(transformers, name).from_pretrained(folder, trust_remote_code=True)
            assert f"modeling_bertsmith.{type(loaded).__name__}" == named[name]
        else:
            with pytest.raises(
                (ValueError, TypeError), match=r"BertsmithConfig|expected a model of the class Bertsmith"
            ):
                getattr(transformers, name).from_pretrained(folder, trust_remote_code=True)
    hidden = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    vectors = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True).encode(list(TEXTS))
    here = bertsmith.load(folder, device="cpu").embed(list(TEXTS), pooling="mean")
    np.testing.assert_allclose(vectors, here, rtol=0, atol=TOLERANCE)
    assert getattr(hidden, "pooler", None) is None


def test_the_code_of_a_folder_refuses_rows_that_are_longer_than_the_model_reads(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", SPECS["on the mean"])
    text = "the film was good " * 20
    pipe = transformers.pipeline("text-classification", str(folder), trust_remote_code=True, top_k=None, device="cpu")
    with pytest.raises(ValueError, match="expected at most 32 tokens in a row; found 82; pass truncation=True"):
        pipe(text)
    there = {record["label"]: record["score"] for record in pipe([text], truncation=True)[0]}
    with pytest.warns(match="truncated"):
        (here,) = bertsmith.load(folder, device="cpu").classify([text])
    np.testing.assert_allclose([there[label] for label in SPECS["on the mean"].labels], here.probabilities, atol=1e-5)


@pytest.mark.parametrize("kind", ["on the pair", "number", "several labels", "on the first token"])
def test_a_cross_encoder_gives_the_scores_of_bertsmith(kind: str, tmp_path: Path) -> None:
    spec = SPECS[kind]
    folder = write(tmp_path / "model", spec)
    scorer = CrossEncoder(str(folder), device="cpu", trust_remote_code=needs_code(folder))
    model = bertsmith.load(folder, device="cpu")
    if spec.pair:
        pairs = list(zip(TEXTS, SECONDS, strict=True))
        np.testing.assert_allclose(
            scorer.predict(pairs, apply_softmax=True),
            [prediction.probabilities for prediction in model.classify(pairs)],
            atol=1e-5,
        )
        return
    logits = scorer.preprocess(list(TEXTS)) if hasattr(scorer, "preprocess") else scorer.tokenize(list(TEXTS))
    with torch.inference_mode():
        scores = scorer.activation_fn(scorer.forward(logits)["scores"])
    here = (
        [[prediction.value] for prediction in model.score(list(TEXTS))]
        if spec.kind == "regression"
        else [prediction.probabilities for prediction in model.classify(list(TEXTS))]
    )
    np.testing.assert_allclose(scores.reshape(len(TEXTS), -1), here, atol=1e-5)


@pytest.mark.parametrize("kind", ONLY_HERE)
def test_what_only_bertsmith_computes_is_opened_by_nothing_else(kind: str, tmp_path: Path) -> None:
    spec = ONLY_HERE[kind]
    folder = write(tmp_path / "model", spec)
    assert config_of(folder)["model_type"] == "bertsmith-only-bert"
    for name in ("AutoConfig", *(AUTO if kind == "windows" else ("AutoModel", auto_class(folder).__name__))):
        for trust in (False, True):
            with pytest.raises(ValueError, match="bertsmith-only-bert"):
                getattr(transformers, name).from_pretrained(folder, trust_remote_code=trust)
    with pytest.raises(ValueError, match="bertsmith-only-bert"):
        transformers.pipeline(ENTRANCES[spec.kind], str(folder), device="cpu", trust_remote_code=True)
    for entrance in (SentenceTransformer, CrossEncoder):
        with pytest.raises(ValueError, match="bertsmith-only-bert"):
            entrance(str(folder), device="cpu", trust_remote_code=True)
    with pytest.raises(
        CheckpointError, match=r"is not a model that `transformers` computes: it has .*; use it with bertsmith"
    ):
        export(folder, tmp_path / "out", to="huggingface")
    assert not (tmp_path / "out").exists()
    header, _, text = (folder / "README.md").read_text(encoding="utf-8").partition("\n---\n")
    assert "library_name: bertsmith" in header
    assert "pipeline_tag" not in header
    assert "bertsmith opens this folder. It does not load in `transformers`" in text
    sample = kind if kind in SPECS else "tags" if spec.kind == "tagging" else "pair"
    assert len(load_predictor(folder).predict(examples_of(sample, 3))) == 3


@pytest.mark.parametrize("kind", ["on the mean", "on three vectors", "both orders"])
def test_a_folder_in_the_earlier_form_gives_the_same_predictions(kind: str, tmp_path: Path) -> None:
    spec = (OPENED | ONLY_HERE)[kind]
    folder = write(tmp_path / "model", spec)
    examples = examples_of(kind if kind in SPECS else "pair", 5)
    new = load_predictor(folder).predict(examples)
    assert inspect_model(folder).digests == "verified"
    change_json(
        folder / "config.json", model_type="bert", architectures=["BertModel"], auto_map=None, bertsmith_head=None
    )
    (folder / CODE).unlink(missing_ok=True)
    assert load_predictor(folder).predict(examples) == new


def test_the_code_is_covered_by_the_digests_and_never_runs_here(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", SPECS["on the mean"])
    with open(folder / CODE, "a", encoding="utf-8") as file:
        file.write("raise SystemExit('run')\n")
    assert inspect_model(folder).altered == (CODE,)
    assert len(load_predictor(folder).predict(examples_of("on the mean", 2))) == 2
    lines = export(folder, tmp_path / "out", to="huggingface")[1]
    assert f"the encoder in transformers, with the head as {CODE} describes it: logits differ" in lines[-1]
    assert "raise SystemExit" not in (tmp_path / "out" / CODE).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["on the mean", "on three vectors", "tags", "answer"])
def test_a_session_of_onnx_runtime_gives_the_logits_of_bertsmith(kind: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    spec = OPENED[kind]
    export(write(tmp_path / "model", spec), tmp_path / "onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "onnx")
    texts = (list(TEXTS), list(SECONDS)) if kind == "answer" else (list(TEXTS),)
    inputs = tokenizer(*texts, padding=True, return_tensors="np")
    outputs = session.run(None, {input_.name: inputs[input_.name] for input_ in session.get_inputs()})
    model = auto_class(tmp_path / "model").from_pretrained(
        tmp_path / "model", trust_remote_code=needs_code(tmp_path / "model")
    )
    with torch.inference_mode():
        output = model.eval()(**{name: torch.from_numpy(values) for name, values in inputs.items()}).to_tuple()
    real = inputs["attention_mask"].astype(bool)
    for there, here in zip(outputs, output, strict=True):
        pair = (there, here.numpy()) if spec.kind == "classification" else (there[real], here.numpy()[real])
        np.testing.assert_allclose(*pair, atol=TOLERANCE)


def test_a_sentence_encoder_opens_without_a_missing_pooler(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "model", SPECS["scored vectors"])
    transformers.logging.set_verbosity_warning()
    vectors = SentenceTransformer(str(folder), device="cpu").encode(list(TEXTS))
    assert "MISSING" not in capfd.readouterr().err
    np.testing.assert_allclose(vectors, bertsmith.load(folder, device="cpu").embed(list(TEXTS)), atol=1e-5)


def test_the_code_is_formatted_and_names_its_licence() -> None:
    path = Path(bertsmith.__file__).parent / "models" / "checkpoints" / f"{CODE}.template"
    assert path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: Apache-2.0\n")
    for command in (["format", "--check"], ["check"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, str(path)], check=True, capture_output=True)
