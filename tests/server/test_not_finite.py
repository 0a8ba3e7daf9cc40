"""No answer is made from NaN or infinity: not by the library, the commands or the server."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import InputError, Model, NotFiniteError, WordEncoder
from bertsmith.app.library.vector_files import embed_file
from bertsmith.base.core.finite import first_not_finite
from bertsmith.inference.vectors.jobs import TextVectors, TokenVectorsOfTexts, write_vectors
from bertsmith.inference.vectors.token_features import TokenFeatures
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.metrics.vectors import unit
from server.asgi import Client, serve
from server.models import load_models
from written_files import file_with

GOOD, POISON = "the film was good", "the awful film was in one and it was a plot of the film"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Models of each kind that compute NaN for the poisonous text, and numbers for the others."""
    result = load_models(tmp_path_factory.mktemp("models"))
    for name, model in result.items():
        with torch.no_grad():
            if name == "novels":  # the masked-LM head reads the same table
                model.encoder.model.embeddings.position.weight[12:] = float("inf")
            else:
                model.encoder.model.word_table[model.tokenizer.vocabulary.index["awful"]] = float("inf")
    return result


ASKED: list[tuple[str, str, Callable[[Model, list[str]], Any]]] = [
    ("reviews", "classify", lambda model, texts: model.classify(texts)),
    ("long", "classify", lambda model, texts: model.classify([f"{text} and a plot in the film" for text in texts])),
    ("topics", "classify", lambda model, texts: model.classify(texts)),
    ("pairs", "classify", lambda model, texts: model.classify([("the plot", text) for text in texts])),
    ("pairs", "rerank", lambda model, texts: model.rerank("the plot", texts)),
    ("sentences", "rerank", lambda model, texts: model.rerank("the plot", texts[1:])),
    ("sentences", "classify_by_labels", lambda model, texts: model.classify_by_labels(texts, ["film", "plot"])),
    ("entails", "classify_by_labels", lambda model, texts: model.classify_by_labels(texts, ["film", "plot"])),
    ("stars", "score", lambda model, texts: model.score(texts)),
    ("endings", "choose", lambda model, texts: model.choose([("the", [text, "a plot"]) for text in texts])),
    ("names", "tag", lambda model, texts: model.tag(texts)),
    ("answers", "answer", lambda model, texts: model.answer([("who ?", text) for text in texts])),
    ("doubts", "answer", lambda model, texts: model.answer([("who ?", text) for text in texts])),
    ("novels", "fill", lambda model, texts: model.fill([f"{text} [MASK]" for text in texts])),
    ("novels", "next_sentence", lambda model, texts: model.next_sentence([("a plot", text) for text in texts])),
    ("novels", "embed", lambda model, texts: model.embed(texts)),
    ("sentences", "embed", lambda model, texts: model.embed(texts)),
    ("novels", "features", lambda model, texts: model.features([text.split() for text in texts])),
]


@pytest.mark.parametrize(("name", "ability", "ask"), ASKED)
def test_a_number_that_is_not_finite_is_an_error_that_names_the_text(
    models: dict[str, Model], name: str, ability: str, ask: Callable[[Model, list[str]], Any]
) -> None:
    assert len(ask(models[name], [GOOD, GOOD])) >= 1
    with pytest.raises(
        NotFiniteError, match=r"expected numbers from the model for .*; found NaN or infinity"
    ) as caught:
        ask(models[name], [GOOD, GOOD, POISON, GOOD, POISON])
    assert caught.value.index == 2
    assert " 3" in str(caught.value).split(";")[0]


def test_the_attention_view_and_the_word_layer_refuse_too(models: dict[str, Model]) -> None:
    with pytest.raises(NotFiniteError):
        models["novels"].attention(POISON)
    assert WordEncoder(models["novels"])([GOOD.split()])[0].isfinite().all()
    with pytest.raises(NotFiniteError):
        WordEncoder(models["novels"])([GOOD.split(), POISON.split()])


def test_the_answers_before_the_text_are_still_given(models: dict[str, Model]) -> None:
    predictor = models["reviews"]._predictor
    from bertsmith.tasks.datasets.examples import TextExample, named_texts

    texts = [GOOD, "a plot", POISON, GOOD]
    examples = [TextExample(id=str(n), first=text, location=f"line {n + 1} of 'f'") for n, text in enumerate(texts)]
    predicted = predictor.stream(examples)
    assert [next(predicted)[0].id, next(predicted)[0].id] == ["0", "1"]
    with pytest.raises(NotFiniteError, match="for line 3 of 'f'"):
        next(predicted)
    filler = models["novels"]._pretrained
    masked = [f"{text} [MASK]" for text in (GOOD, f"{POISON} and it was a film", POISON, GOOD)]
    filled = filler.fill_each(named_texts(masked, ["line a", "line b", "line c", "line d"]))
    assert next(filled).text == masked[0]
    with pytest.raises(NotFiniteError, match="for line b;"):
        next(filled)


ROUTES: list[tuple[str, str, dict[str, Any]]] = [
    ("/predict", "reviews", {"texts": [GOOD, POISON]}),
    ("/predict", "stars", {"texts": [GOOD, POISON]}),
    ("/predict", "endings", {"questions": [{"context": "a", "endings": ["b", text]} for text in (GOOD, POISON)]}),
    ("/tag", "names", {"texts": [GOOD, POISON]}),
    ("/answer", "answers", {"questions": [{"question": "who ?", "context": text} for text in (GOOD, POISON)]}),
    ("/fill", "novels", {"texts": [f"[MASK] {GOOD}", f"[MASK] {POISON}"]}),
    ("/next", "novels", {"pairs": [["a", GOOD], ["a", POISON]]}),
    ("/rerank", "pairs", {"query": "a", "passages": [GOOD, POISON]}),
    ("/classify", "sentences", {"texts": [GOOD, POISON], "labels": {"film": "", "plot": ""}}),
    ("/classify", "entails", {"texts": [GOOD, POISON], "labels": {"film": "", "plot": "", "anna": ""}}),
    ("/attention", "novels", {"text": POISON}),
    ("/v1/embeddings", "novels", {"input": [GOOD, POISON]}),
]


def test_the_server_refuses_such_an_item_and_answers_the_requests_next_to_it(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        for path, name, body in ROUTES:
            good = {key: value[:1] if isinstance(value, list) else value for key, value in body.items()}
            good = {**good, "text": GOOD} if path == "/attention" else good
            wrong, right = await asyncio.gather(
                client.post(path, {**body, "model": name}), client.post(path, {**good, "model": name})
            )
            assert (right.status, wrong.status) == (200, 422), (path, wrong)
            assert wrong.error.startswith("expected numbers from the model for "), path
            assert path == "/attention" or " 2; found NaN or infinity" in wrong.error, (path, wrong.error)

    serve(models, script)


def test_a_label_without_numbers_is_named(models: dict[str, Model]) -> None:
    with pytest.raises(InputError, match=f"expected numbers from the model for the label '{POISON}'; found NaN"):
        models["sentences"].classify_by_labels([GOOD], ["film", POISON])


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_a_file_of_vectors_names_the_text_wherever_it_is(models: dict[str, Model], tmp_path: Path, suffix: str) -> None:
    file = file_with(tmp_path / "texts.txt", "\n".join([GOOD] * 5 + [POISON, GOOD]) + "\n")
    embedder = models["novels"]._own_embedder
    features = TokenFeatures(models["novels"].encoder)
    for job in (TextVectors(embedder), TokenVectorsOfTexts(features)):
        with pytest.raises(NotFiniteError, match="for text 6; found"):
            write_vectors(job, TextLines(file), tmp_path / f"x.{suffix}", replace=True)


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_numbers_too_large_for_float16_are_refused_not_written_as_infinity(
    tmp_path: Path, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from bertsmith.inference.vectors.files import VectorFile
    from tasks.task_samples import write_base_model

    for value, is_refused in ((65_504.0, False), (65_519.0, False), (65_520.0, True), (-1e30, True)):
        out = tmp_path / f"{value}.{suffix}"
        vectors = np.array([[1.0, 2.0], [3.0, value]], dtype=np.float32)
        with VectorFile(out, {}, 2, half=True) as file:
            file.append(vectors[:1])
            if is_refused:
                with pytest.raises(InputError, match=r"expected numbers up to 65,504 for float16 in vector 3 of"):
                    file.append(vectors)
            else:
                file.append(vectors)
    model, texts = write_base_model(tmp_path_factory.mktemp("m") / "model"), tmp_path / "t.txt"
    texts.write_text(GOOD, encoding="utf-8")
    assert embed_file(texts, model, tmp_path / f"fine.{suffix}", float16=True).rows == 1


def test_vectors_whose_squares_overflow_still_get_length_1() -> None:
    huge = np.array([[3e30, 4e30], [3.0, 4.0]], dtype=np.float32)
    assert unit(huge).dtype == np.float32
    np.testing.assert_allclose(unit(huge), [[0.6, 0.8], [0.6, 0.8]], rtol=1e-6)


def test_the_check_finds_the_first_entry_and_no_sum_of_finite_numbers_is_one() -> None:
    largest = np.full((3, 1000), np.finfo(np.float32).max, dtype=np.float32)
    assert first_not_finite(largest) is None
    assert first_not_finite(np.zeros((0, 4), np.float32)) is None
    for value in (float("nan"), float("inf"), -float("inf")):
        wrong = largest.copy()
        wrong[1, 7] = wrong[2, 0] = value
        assert first_not_finite(wrong) == 1
    both = np.array([0.0, np.inf, -np.inf], dtype=np.float32)
    assert first_not_finite(both) == 1
