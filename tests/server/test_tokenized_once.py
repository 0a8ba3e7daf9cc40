"""Every text of a request is tokenized once, on each route of the server and in each call of the library."""

import contextlib
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import Model
from bertsmith.app.cli.app import main
from bertsmith.app.server import routes
from bertsmith.app.server.routes import ROUTES
from bertsmith.tasks.baselines.linear import LinearModel
from bertsmith.tasks.baselines.text_vectors import TextCosine
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from server.asgi import replies_to
from server.models import write_models
from tasks.task_samples import SPECS

ENCODERS = ("encode", "encode_batch", "encode_words", "encode_with_offsets", "encode_batch_with_offsets")
BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("/v1/embeddings", "novels", {"input": ["text1 film", "text2"]}),
    ("/v1/embeddings", "sentences", {"input": ["text1 film", "text2"]}),
    ("/predict", "reviews", {"texts": ["text1 film", "text2"]}),
    ("/predict", "pairs", {"texts": [["text1", "text2"]]}),
    ("/predict", "stars", {"texts": ["text1"]}),
    ("/predict", "long", {"texts": ["text1 " + "the " * 60]}),
    ("/predict", "summaries", {"texts": ["text1 film"]}),
    ("/predict", "extracts", {"texts": ["text1 film. text2"]}),
    ("/predict", "endings", {"questions": [{"context": "text1", "endings": ["text2", "text3"]}]}),
    ("/resolve", "pronouns", {"pronouns": [{"text": "text1 who text2", "pronoun": [6, 9], "candidates": [[0, 5]]}]}),
    ("/tag", "names", {"texts": ["text1 text2 film", "text3"]}),
    ("/answer", "answers", {"questions": [{"question": f"text{n}", "context": "text3 film"} for n in (1, 2)]}),
    ("/answer", "doubts", {"questions": [{"question": "text1", "context": "text2 " + "the " * 60}]}),
    ("/fill", "novels", {"texts": ["text1 [MASK]", "[MASK] text2"]}),
    ("/complete", "stories", {"texts": ["text1 film", "text2"], "tokens": 3}),
    ("/v1/completions", "stories", {"prompt": ["text1 film", "text2"], "max_tokens": 3}),
    ("/v1/completions", "stories", {"prompt": "text1 film", "max_tokens": 3, "stream": True}),
    ("/perplexity", "stories", {"texts": ["text1 film", "text2"]}),
    ("/next", "novels", {"pairs": [["text1", "text2"], ["text1", "text3"]]}),
    ("/rerank", "pairs", {"query": "text1", "passages": ["text2", "text3"]}),
    ("/rerank", "novels", {"query": "text1", "passages": ["text2", "text3"]}),
    ("/classify", "novels", {"texts": ["text1 film", "text2"], "labels": {"text3": "text4", "text5": ""}}),
    ("/classify", "sentences", {"texts": ["text1 film"], "labels": ["text3", "text5"], "multi_label": True}),
    (
        "/classify",
        "entails",
        {"texts": ["text1 film", "text2"], "labels": {"film": "text4", "text5": ""}, "template": ["a {} ?"]},
    ),
    ("/tokenize", "reviews", {"texts": ["text1 film", "text2"]}),
    ("/attention", "novels", {"text": "text1", "pair": "text2"}),
]
CALLS: list[tuple[str, str, Callable[[Model], object]]] = [
    ("classify", "reviews", lambda model: model.classify(["text1 film", "text2"])),
    ("classify", "pairs", lambda model: model.classify([("text1", "text2")])),
    ("score", "stars", lambda model: model.score(["text1", "text2"])),
    ("choose", "endings", lambda model: model.choose([("text1", ["text2", "text3"])])),
    ("generate", "summaries", lambda model: model.generate(["text1 film", "text2"])),
    ("extract", "extracts", lambda model: model.extract([["text1 film", "text2"], ["text3"]])),
    (
        "resolve",
        "pronouns",
        lambda model: model.resolve([{"text": "text1 who", "pronoun": (6, 9), "candidates": [(0, 5)]}]),
    ),
    ("tag", "names", lambda model: model.tag(["text1 text2 film", "text3"])),
    ("answer", "answers", lambda model: model.answer([("text1", "text3"), ("text2", "text3")])),
    ("fill", "novels", lambda model: model.fill(["text1 [MASK]", "text2 [MASK]"])),
    ("complete", "stories", lambda model: model.complete(["text1 film", "text2"], tokens=3)),
    ("perplexity", "stories", lambda model: model.perplexity(["text1 film", "text2"])),
    ("next_sentence", "novels", lambda model: model.next_sentence([("text1", "text2"), ("text1", "text3")])),
    ("embed", "novels", lambda model: model.embed(["text1", "text2"])),
    ("features", "novels", lambda model: model.features([["text1", "text2"], ["text3"]])),
    ("rerank", "pairs", lambda model: model.rerank("text1", ["text2", "text3"])),
    ("rerank", "sentences", lambda model: model.rerank("text1", ["text2", "text3"])),
    ("classify_by_labels", "novels", lambda model: model.classify_by_labels(["text1", "text2"], ["text3", "text4"])),
    (
        "classify_by_labels",
        "entails",
        lambda model: model.classify_by_labels(["text1"], ["text3", "text4"], template=["a {} ?"]),
    ),
    ("attention", "novels", lambda model: model.attention("text1", "text2")),
    ("tokens", "novels", lambda model: model.tokens(["text1", "text2"])),
    ("pieces", "novels", lambda model: model.pieces(["text1", "text2"])),
]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All strings that tokenizers are asked to encode, in order; what an encoding calls itself does not count."""
    strings: list[str] = []
    inside = threading.local()

    def counted(encode: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: WordPieceTokenizer, texts: Any, *options: Any, **named: Any) -> Any:
            if getattr(inside, "depth", 0) == 0:
                strings.extend([texts] if isinstance(texts, str) else texts)
            inside.depth = getattr(inside, "depth", 0) + 1
            try:
                return encode(self, texts, *options, **named)
            finally:
                inside.depth -= 1

        return method

    for name in ENCODERS:
        monkeypatch.setattr(WordPieceTokenizer, name, counted(getattr(WordPieceTokenizer, name)))
    return strings


def require_once(encoded: list[str], *asked: object) -> None:
    """The markers in what was asked, each encoded exactly once."""
    markers = sorted(set(filter(lambda word: word[:4] == "text" and word[4:].isdigit(), _words(asked))))
    assert {marker: _words(encoded).count(marker) for marker in markers} == dict.fromkeys(markers, 1)


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    parts = value.values() if isinstance(value, dict) else value
    return [word for part in parts for word in _words(part)] if isinstance(value, dict | list | tuple) else []


@pytest.mark.parametrize(("path", "name", "body"), BODIES)
def test_a_route_tokenizes_each_text_once(
    models: dict[str, Model], encoded: list[str], path: str, name: str, body: dict[str, Any]
) -> None:
    (reply,) = replies_to(models, (path, {"model": name, **body}))
    assert reply.status == 200, reply
    require_once(encoded, body)


def test_every_route_is_among_them() -> None:
    of_texts = {route.path for route in ROUTES if route.handler.__module__ == routes.__name__}
    assert {path for path, _, _ in BODIES} == of_texts


@pytest.mark.parametrize(("method", "name", "call"), CALLS)
def test_a_call_of_a_model_tokenizes_each_text_once(
    models: dict[str, Model], encoded: list[str], method: str, name: str, call: Callable[[Model], object]
) -> None:
    call(models[name])
    assert encoded, method
    require_once(encoded, [f"text{number}" for number in (1, 2, 3) if any(f"text{number}" in text for text in encoded)])


def test_every_ability_is_among_them(models: dict[str, Model]) -> None:
    assert {ability for model in models.values() for ability in model.abilities} <= {method for method, _, _ in CALLS}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_models(tmp_path_factory.mktemp("folders"))


COMMANDS: dict[str, str] = {
    "ask {answers} {file} text1 text2": "",
    "search {file} --queries {queries} --method bm25 --rerank {pairs}": "",
    "fill --model {novels} -": "text1 [MASK]\ntext2 [MASK]\n",
    "complete --model {stories} --tokens 2 -": "text1 film\ntext2\n",
    "perplexity {file} --model {stories}": "",
    "next --model {novels} text1 text2 text3": "",
    "predict --model {reviews}": "text1\ntext2\n",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_tokenizes_each_text_once(
    folders: dict[str, Path], tmp_path: Path, encoded: list[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    file, queries = tmp_path / "document.txt", tmp_path / "queries.txt"
    file.write_text("text3 film\ntext4 film\n", encoding="utf-8")
    queries.write_text("text1 film\ntext2 film\n", encoding="utf-8")
    arguments = [part.format(**folders, file=file, queries=queries) for part in command.split()]
    monkeypatch.setattr("sys.argv", ["bertsmith", *arguments, "--device", "cpu"])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(COMMANDS[command].encode()))))
    monkeypatch.setattr("bertsmith.tasks.datasets.blocks.sized_blocks.__defaults__", (30,))  # characters in a block
    with contextlib.suppress(SystemExit):
        main()
    assert encoded
    require_once(encoded, [word for text in encoded for word in text.split()])


def test_a_cosine_of_two_texts_tokenizes_each_once(folders: dict[str, Path], encoded: list[str]) -> None:
    linear = LinearModel(weight=np.ones((2, 1), np.float32), bias=np.zeros(2, np.float32), penalty=0.0)
    encoder = load_frozen_encoder(folders["novels"], device="cpu")
    pairs = [TextExample(id=str(n), first="text1", second=f"text{n}", location=f"pair {n}") for n in (2, 3)]
    TextCosine(spec=SPECS["pair"], linear=linear, encoder=encoder).predict(pairs)
    require_once(encoded, ["text1", "text2", "text3"])
