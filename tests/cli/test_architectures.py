"""Every command on the architectures that come after BERT, as a user types them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertsmith import load
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.head_inputs import APART, OF_TWO_TEXTS
from tasks.architecture_samples import OTHERS, WITH_OWN_TOKENIZER, change_json, tokenizer_of, write_peer
from tasks.test_every_task import write_file
from written_files import file_with

EVERY = pytest.mark.parametrize("architecture", OTHERS)
CPU = ("--device", "cpu")
TEXTS = "the good film was it\nanna was in rome .\n"
TASKS = {  # a task of each kind, and a line to predict
    "sst-2": "the good film",
    "mrpc": "the good film\tit was great",
    "multi-label": "the good film",
    "regression": "the good film",
    "choice": "the film\twas good\twas bad",
    "ner": "anna was in rome",
    "squad": "who ?\tthe anna film .",
    "squad2": "who ?\tthe anna film .",
}

QUICK = ("sst-2", "mrpc", "ner", "squad")  # a text, two, tags, an answer; the others are for `make test-slow`


@pytest.fixture
def pretrained(architecture: str, tmp_path: Path) -> Path:
    """A folder with a masked-LM head that `transformers` wrote."""
    write_peer(tmp_path / "pretrained", architecture, "ForMaskedLM")
    return tmp_path / "pretrained"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return file_with(tmp_path / "texts.txt", TEXTS)


@EVERY
def test_masks_are_filled_with_the_mask_of_bert_and_their_own(run, architecture: str, pretrained: Path) -> None:
    mask_of_model = load(pretrained, device="cpu").tokenizer.vocabulary.special.mask
    answers = [
        run("fill", "--model", pretrained, f"the {mask} was good", "--json", *CPU) for mask in ("[MASK]", mask_of_model)
    ]
    assert [answer.code for answer in answers] == [0, 0], answers[0].err
    first, second = (json.loads(answer.out)["masks"] for answer in answers)
    assert first == second
    assert len(first) == 1
    run("fill", "--model", pretrained, "the film was good", *CPU).refuses("[MASK]")
    run("next", "--model", pretrained, "the film", "it was", *CPU).refuses()


@EVERY
def test_texts_are_cut_and_shown_as_the_model_reads_them(run, architecture: str, pretrained: Path) -> None:
    tokenizer = load_any(pretrained).require_tokenizer()
    cut = run("tokenize", "--model", pretrained, stdin=b"the [MASK] was\n")
    assert cut.out.split() == tokenizer.tokenize("the [MASK] was", special_tokens=True)
    assert tokenizer.vocabulary.special.mask in cut.out
    table = run("inputs", "--model", pretrained, "the film", "it was").out.splitlines()[1:]
    pieces = [row.split()[0] for row in table]
    special = tokenizer.vocabulary.special
    between = tokenizer.template.between.count(tokenizer.vocabulary.sep_id)
    assert (pieces[0], pieces[-1]) == (special.cls, special.sep)
    assert pieces.count(special.sep) == between + 1


@EVERY
def test_vectors_of_texts_and_words(run, architecture: str, pretrained: Path, lines: Path, tmp_path: Path) -> None:
    for pooling in ("mean", "cls", "max"):
        out = tmp_path / f"{pooling}.npy"
        run("embed", lines, "--model", pretrained, "--out", out, "--pooling", pooling, *CPU).succeeds()
        assert np.load(out).shape == (2, 32)
    if architecture != "modernbert":  # whose masked language model has what its heads read through
        refused = run("embed", lines, "--model", pretrained, "--out", tmp_path / "p.npy", "--pooling", "pooler", *CPU)
        refused.refuses("trained pooler")
    out = tmp_path / "words.parquet"
    run("features", lines, "--model", pretrained, "--out", out, "--words", "mean", *CPU).succeeds()
    assert pq.read_table(out)["word"].to_pylist()[:5] == "the good film was it".split()
    result = run("search", lines, "--model", pretrained, "--query", "anna was in rome .", "--top", 1, *CPU)
    assert result.out.splitlines()[0].endswith("anna was in rome .")
    senses = run("senses", "was", lines, "--model", pretrained, *CPU).succeeds()
    assert senses.out.startswith("was: 2 occurrences")


def test_the_pooler_of_a_bare_roberta_is_one_of_the_poolings(run, lines: Path, tmp_path: Path) -> None:
    write_peer(tmp_path / "bare", "roberta", "Model")
    out = tmp_path / "p.npy"
    run("embed", lines, "--model", tmp_path / "bare", "--out", out, "--pooling", "pooler", *CPU).succeeds()
    assert np.abs(np.load(out)).max() < 1  # a tanh


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task in QUICK else pytest.mark.slow) for task in TASKS]
)
@EVERY
def test_a_task_is_trained_scored_asked_and_exported(
    run, architecture: str, pretrained: Path, task: str, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
    data = write_file(task, tmp_path)
    tuned = run(
        "finetune", "--model", pretrained, "--task", task, "--train", data, "--dev", data, "--out", tmp_path / "run",
        "--seeds", 1, "--epochs", 1, "--batch-size", 8, "--max-length", 32, "--precision", "fp32", *CPU,
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    model = tmp_path / "run" / "model"
    card = (model / "README.md").read_text(encoding="utf-8")
    config = load_any(model).config
    assert f"# {config.display_name} for " in card
    assert f"- {architecture}\n" in card.split("---")[1]
    # The products of training; others may have other last digits, and one that differs can move a score.
    plain = ("--products", "plain")
    scored = run("evaluate", "--model", model, "--data", data, "--task", task, "--json", *plain, *CPU).succeeds()
    best = json.loads((tmp_path / "run" / "report.json").read_text())["scores"]
    scores = json.loads(scored.out)["scores"]
    assert all(scores[name] == pytest.approx(row["mean"], abs=1e-6) for name, row in best.items())
    asked = run("predict", "--model", model, *CPU, stdin=f"{TASKS[task]}\n".encode())
    assert (asked.code, len(asked.out.splitlines())) == (0, 1), asked.err
    run("convert", model, tmp_path / "onnx", "--to", "onnx", "--limit", 1e-3).succeeds()
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    tells_texts = config.type_vocab_size > 1 or load_any(model).metadata.reads in OF_TWO_TEXTS
    segments = ["token_type_ids"] if tells_texts else []
    assert [input_.name for input_ in session.get_inputs()] == ["input_ids", "attention_mask", *segments]
    converted = run("convert", model, tmp_path / "huggingface", "--to", "huggingface")
    if load_any(model).metadata.reads == APART:  # which only bertsmith computes
        assert (converted.code, converted.err.count("\n")) == (1, 1)
        assert "it has a head that reads the two texts of a row apart; use it with bertsmith" in converted.err
    else:
        assert converted.code == 0, converted.err
    run("convert", model, tmp_path / "google", "--to", "google").refuses()
    assert not (tmp_path / "google").exists()


@pytest.mark.skipif(choose_inference("cpu", "int8").precision != "int8", reason="this processor does not multiply int8")
@EVERY
def test_a_model_is_quantized(run, architecture: str, tmp_path: Path) -> None:
    write_peer(tmp_path / "theirs", architecture, "ForSequenceClassification")
    change_json(tmp_path / "theirs" / "config.json", id2label={"0": "0", "1": "1"}, label2id={"0": 0, "1": 1})
    run("convert", tmp_path / "theirs", tmp_path / "model", "--to", "huggingface").succeeds()
    data = write_file("sst-2", tmp_path)
    run("quantize", "--model", tmp_path / "model", "--data", data, "--task", "sst-2", "--limit", 1).succeeds()
    assert "int8" in json.loads((tmp_path / "model" / "bertsmith.json").read_text())


@EVERY
def test_a_pretrained_model_goes_to_onnx_and_tells_how_to_use_it(
    run, architecture: str, pretrained: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    config = load_any(pretrained).config
    run("convert", pretrained, tmp_path / "onnx", "--to", "onnx", "--int8").succeeds()
    run("convert", pretrained, tmp_path / "again", "--to", "huggingface").succeeds()
    card = (tmp_path / "again" / "README.md").read_text(encoding="utf-8")
    assert f"# {config.display_name}, pre-trained" in card
    assert 'bertsmith fill --model . "A [MASK] ."' in card
    assert len(load(tmp_path / "again", device="cpu").fill(["A [MASK] ."])[0][0]) == 5


@pytest.fixture
def corpus(run, tmp_path: Path) -> Path:
    """A corpus made with the WordPieces of the samples."""
    tokenizer_of("distilbert").vocabulary.save(tmp_path / "vocab.txt")
    documents = ["\n".join(f"the {word} film was {word} ." for word in ("good", "bad", "it")) for _ in range(12)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    made = run(
        "corpus", tmp_path / "text.txt", "--vocab", tmp_path / "vocab.txt", "--out", tmp_path / "corpus",
        "--workers", 1,
    )  # fmt: skip
    assert made.code == 0, made.err
    return tmp_path / "corpus"


@EVERY
def test_pretraining_continues_where_the_corpus_and_the_heads_are_those_of_the_model(
    run, architecture: str, pretrained: Path, corpus: Path, tmp_path: Path
) -> None:
    options = ["--steps", 2, "--rows-per-step", 4, "--max-length", 16, "--precision", "fp32", *CPU]
    command = ["pretrain", corpus, "--init", pretrained, "--out", tmp_path / "run", *options, "--objective"]
    if architecture == "roberta" or architecture in WITH_OWN_TOKENIZER:
        run(*command, "mlm").refuses("a corpus made with the vocabulary of")
        assert not (tmp_path / "run").exists()
        return
    for objective in ("mlm+nsp", "nsp", "mlm+sop"):
        run(*command, objective).refuses("no next-sentence head", "--objective mlm")
        assert not (tmp_path / "run").exists()
    run(*command, "left-to-right").refuses("cannot say left-to-right")
    run(*command, "mlm").succeeds()
    folder = load_any(tmp_path / "run" / "model")
    assert (folder.config.model_type, folder.parts) == (architecture, ("mlm",))
    assert load_pretraining_heads(folder, device="cpu", needs=["mlm"]).fill("the [MASK] was")


@EVERY
def test_a_model_is_served(architecture: str, pretrained: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    pytest.importorskip("prometheus_client", reason="needs the extra serve")
    pytest.importorskip("uvicorn", reason="needs the extra serve")
    from server.asgi import Client, serve

    write_peer(tmp_path / "classifier", architecture, "ForSequenceClassification")
    models = {name: load(tmp_path / name, device="cpu") for name in ("pretrained", "classifier")}
    tokenizer = models["pretrained"].tokenizer
    text = "the [MASK] was good ."

    async def script(client: Client) -> None:
        async def ask(path: str, **body: Any) -> Any:
            reply = await client.post(path, body)
            assert reply.status == 200, reply.body
            return reply.json

        filled = await ask("/fill", model="pretrained", texts=[text])
        gap = models["pretrained"].fill([text])[0][0]
        assert filled["predictions"][0]["gaps"][0][0]["piece"] == gap[0].piece
        assert filled["usage"]["tokens_in"] == len(tokenizer.tokenize(text, special_tokens=True)) + 2
        vectors = await ask("/v1/embeddings", model="pretrained", input=["the film"])
        assert len(vectors["data"][0]["embedding"]) == 32
        cut = (await ask("/tokenize", model="pretrained", texts=[text]))["texts"][0]
        assert cut["pieces"] == tokenizer.tokenize(text, special_tokens=True)
        assert [text[start:end] for start, end in cut["offsets"] if start < end] == text.split()
        looks = await ask("/attention", model="pretrained", text=text, pair="it was")
        special = tokenizer.template.num_special(2)
        count = len(looks["pieces"])
        assert count == special + sum(len(tokenizer.tokenize(item, special_tokens=True)) for item in (text, "it was"))
        assert np.array(looks["attention"]).shape == (load_any(pretrained).config.num_hidden_layers, 4, count, count)
        predicted = await ask("/predict", model="classifier", texts=["the film", "it was"])
        assert len(predicted["predictions"]) == 2
        assert predicted["usage"]["tokens_in"] == sum(
            len(tokenizer.encode(item)) + 2 for item in ("the film", "it was")
        )

    serve(models, script)
