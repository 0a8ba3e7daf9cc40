"""The server gives the library's answers: each item gets the same answer as alone, however requests are batched."""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from bertsmith import Model
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from server.asgi import Reply, replies_to
from tasks.task_samples import WORDS

STRANGE = [
    "",
    " ",
    "Ünïcödé",
    "漢字",
    "word" * 30,
    "\u0000",
    "é",
    "🙂",
    "a\tb\nc",
    "[CLS]",
    "[SEP] [PAD]",
    "-",
    "ﬀ",
    "\u202e",
]


class Asked(NamedTuple):
    """A request, and the library's answer to it."""

    path: str
    body: dict[str, Any]
    check: Callable[[Any], None]
    library: Callable[[], Any]


def close(served: Any, bare: Any) -> None:
    """Numbers are equal within the tolerance of the library, everything else exactly."""
    if isinstance(bare, float):
        assert served == pytest.approx(bare, rel=BATCH_TOLERANCE, abs=BATCH_TOLERANCE)
    elif isinstance(bare, dict):
        assert served.keys() == bare.keys()
        for key, value in bare.items():
            close(served[key], value)
    elif isinstance(bare, list | tuple):
        assert len(served) == len(bare)
        for answer, other in zip(served, bare, strict=True):
            close(answer, other)
    else:
        assert served == bare


class Draw:
    """Random requests, a function of the seed."""

    def __init__(self, models: dict[str, Model], seed: int) -> None:
        self.models, self.draw = models, generator(seed, "requests")

    def text(self, words: int = 12) -> str:
        count = int(self.draw.integers(0, words))
        result = [WORDS[int(self.draw.integers(len(WORDS)))] for _ in range(count)]
        if self.draw.random() < 0.2:
            result.insert(0, STRANGE[int(self.draw.integers(len(STRANGE)))])
        return " ".join(result) * (20 if self.draw.random() < 0.05 else 1)

    def some(self, make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(int(self.draw.integers(1, 5)))]

    def pair(self) -> list[str]:
        return [self.text(), self.text()]

    def asked(self) -> Asked:
        name = self.draw.choice([*"embed base64 classify pair topics long score choose tag words answer doubt".split(),
                                 *"write extract resolve fill complete completion perplexity next rerank".split(),
                                 *"cosine tokenize attention named entailed".split()]).item()  # fmt: skip
        return getattr(self, f"_{name}")()

    def _embed(self, encoding: str = "float") -> Asked:
        name = self.draw.choice(list(self.models)).item()
        texts = self.some(lambda: self.text(40))

        def check(reply: Any, bare: Any) -> None:
            assert [item["index"] for item in reply["data"]] == list(range(len(texts)))
            for item, vector in zip(reply["data"], bare, strict=True):
                value = item["embedding"]
                served = np.frombuffer(base64.b64decode(value), "<f4") if encoding == "base64" else np.array(value)
                np.testing.assert_allclose(served, vector[0], rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)

        model = self.models[name]
        body = {"model": name, "input": texts, "encoding_format": encoding}
        return self._with("/v1/embeddings", body, check, lambda: [model.embed([text]) for text in texts])

    def _base64(self) -> Asked:
        return self._embed("base64")

    def _classify(self, name: str = "reviews", pair: bool = False, method: str = "classify") -> Asked:
        texts = self.some(self.pair if pair else self.text)

        def bare() -> Any:
            return [getattr(self.models[name], method)([text])[0].to_dict() for text in map(_tuple, texts)]

        return self._with("/predict", {"model": name, "texts": texts}, _predictions, bare)

    def _pair(self) -> Asked:
        return self._classify(self.draw.choice(["pairs", "paraphrases", "duplicates"]).item(), pair=True)

    def _topics(self) -> Asked:
        return self._classify("topics")

    def _long(self) -> Asked:
        return self._classify("long")

    def _score(self) -> Asked:
        return self._classify("stars", method="score")

    def _write(self) -> Asked:
        texts, search = (
            self.some(self.text),
            {"beam": 3, "answers": 2, "max_target_length": self.draw.integers(2, 6).item()},
        )

        def bare() -> Any:
            return [self.models["summaries"].generate([text], **search)[0].to_dict() for text in texts]

        if self.draw.random() < 0.5:
            return self._classify("summaries", method="generate")
        return self._with("/predict", {"model": "summaries", "texts": texts, **search}, _predictions, bare)

    def _extract(self) -> Asked:
        if self.draw.random() < 0.5:
            return self._classify("extracts", method="extract")
        texts = self.some(lambda: self.some(lambda: f"the {self.text()}"))
        model = self.models["extracts"]
        bare = lambda: [model.extract([text])[0].to_dict() for text in texts]  # noqa: E731
        return self._with("/predict", {"model": "extracts", "texts": texts}, _predictions, bare)

    def _resolve(self) -> Asked:
        mentions = {"pronoun": [5, 8], "candidates": [[0, 4], [9, 13]]}
        pronouns = self.some(lambda: {"text": f"anna who bert {self.text(40)}", **mentions})
        model = self.models["pronouns"]

        def bare() -> Any:
            return [model.resolve([pronoun])[0].to_dict() for pronoun in pronouns]

        return self._with("/resolve", {"pronouns": pronouns}, _predictions, bare)

    def _choose(self) -> Asked:
        questions = self.some(lambda: {"context": self.text(), "endings": [self.text() for _ in range(3)]})
        name = self.draw.choice(["endings", "replies"]).item()

        def bare() -> Any:
            return [self.models[name].choose([(row["context"], row["endings"])])[0].to_dict() for row in questions]

        return self._with("/predict", {"model": name, "questions": questions}, _predictions, bare)

    def _tag(self, words: bool = False) -> Asked:
        texts = self.some(lambda: self.text(30).split() or ["the"] if words else self.text(30))
        model = self.models["names"]

        def check(reply: Any, bare: Any) -> None:
            for text, prediction, alone in zip(texts, reply["predictions"], bare, strict=True):
                assert [word["text"] for word in prediction["words"]] == list(alone.words)
                assert [word["tag"] for word in prediction["words"]] == list(alone.tags)
                close([word["probability"] for word in prediction["words"]], list(alone.probabilities))
                for entity, alone_entity in zip(prediction["entities"], alone.entities, strict=True):
                    assert (entity["type"], entity["text"], tuple(entity["words"])) == (
                        alone_entity.type,
                        alone_entity.text,
                        (alone_entity.start, alone_entity.end),
                    )
                    assert (entity["begin"], entity["end"]) == (alone_entity.characters or (None, None))
                for word in prediction["words"] if isinstance(text, str) else ():
                    assert text[word["begin"] : word["end"]] == word["text"]

        return self._with("/tag", {"texts": texts}, check, lambda: [model.tag([text])[0] for text in texts])

    def _words(self) -> Asked:
        return self._tag(words=True)

    def _answer(self, name: str = "answers") -> Asked:
        questions = self.some(lambda: {"question": self.text(9), "context": self.text(60)})
        n_best = int(self.draw.integers(1, 30))
        model = self.models[name]

        def check(reply: Any, bare: Any) -> None:
            for prediction, alone in zip(reply["predictions"], bare, strict=True):
                spans = [span for span in alone.n_best if span[0]][:n_best]
                assert [(answer["text"], answer["begin"], answer["end"]) for answer in prediction["answers"]] == [
                    s[:3] for s in spans
                ]
                close([answer["probability"] for answer in prediction["answers"]], [span[3] for span in spans])
                plain = alone.to_dict()
                close(prediction, {**plain, **{name: plain[name][:n_best] for name in ("n_best", "answers")}})
                assert ("no_answer_probability" in prediction) == (name == "doubts")

        body = {"model": name, "questions": questions, "n_best": n_best}
        pairs = [(question["question"], question["context"]) for question in questions]
        return self._with("/answer", body, check, lambda: [model.answer([pair], n_best=1000)[0] for pair in pairs])

    def _doubt(self) -> Asked:
        return self._answer("doubts")

    def _fill(self) -> Asked:
        texts = self.some(
            lambda: f"{self.text(5)} [MASK] {self.text(5)} {'[MASK]' if self.draw.random() < 0.3 else ''}"
        )
        top = int(self.draw.integers(1, 9))
        model = self.models["novels"]

        def bare() -> Any:
            return [model.fill([text], top)[0].to_dict() for text in texts]

        return self._with("/fill", {"texts": texts, "top": top}, _predictions, bare)

    def _complete(self) -> Asked:
        texts = self.some(lambda: self.text(9))
        drawn = {"temperature": 0.8, "top_k": 9, "top_p": 0.9, "seed": int(self.draw.integers(9))}
        options = {"top": int(self.draw.integers(1, 9)), "tokens": int(self.draw.integers(0, 6)), **drawn}
        model = self.models["stories"]
        bare = lambda: [model.complete([text], **options)[0].to_dict() for text in texts]  # noqa: E731
        return self._with("/complete", {"texts": texts, **options}, _predictions, bare)

    def _completion(self) -> Asked:
        texts, tokens = self.some(lambda: self.text(9)), int(self.draw.integers(1, 6))
        name = self.draw.choice(["stories", "summaries"]).item()
        model = self.models[name]

        def bare() -> Any:
            if name == "stories":
                return [model.complete([text], top=1, tokens=tokens)[0].continuation for text in texts]
            search = {"beam": 1, "answers": 1, "max_target_length": tokens}
            return [model.generate([text], **search)[0].text for text in texts]

        def check(reply: Any, bare: Any) -> None:
            assert [choice["text"] for choice in reply["choices"]] == bare

        return self._with("/v1/completions", {"model": name, "prompt": texts, "max_tokens": tokens}, check, bare)

    def _perplexity(self) -> Asked:
        texts = self.some(lambda: self.text(90))
        model = self.models["stories"]
        bare = lambda: [model.perplexity([text])[0].to_dict() for text in texts]  # noqa: E731
        return self._with("/perplexity", {"texts": texts}, _predictions, bare)

    def _next(self) -> Asked:
        pairs = self.some(self.pair)
        model = self.models["novels"]
        bare = lambda: [model.next_sentence([tuple(pair)])[0].to_dict() for pair in pairs]  # noqa: E731
        return self._with("/next", {"pairs": pairs}, _predictions, bare)

    def _rerank(self, name: str = "pairs") -> Asked:
        query, passages = self.text(), self.some(self.text)

        def check(reply: Any, bare: Any) -> None:
            scores = {item["index"]: item["score"] for item in reply["results"]}
            close([scores[index] for index in range(len(passages))], [score[0] for score in bare])
            assert [item["score"] for item in reply["results"]] == sorted(scores.values(), reverse=True)

        body = {"model": name, "query": query, "passages": passages}
        return self._with(
            "/rerank", body, check, lambda: [self.models[name].rerank(query, [passage]) for passage in passages]
        )

    def _cosine(self) -> Asked:
        return self._rerank(self.draw.choice(["novels", "sentences"]).item())

    def _named(self, name: str = "novels", **options: Any) -> Asked:
        texts, names = self.some(self.text), ["film", "anna ?", "rome_oslo"][: int(self.draw.integers(2, 4))]
        options["multi_label"] = bool(self.draw.random() < 0.5)
        if self.draw.random() < 0.5:
            options["threshold"] = round(self.draw.random(), 1)
        labels = {label: self.text(4).strip() for label in names} if self.draw.random() < 0.5 else names
        model = self.models[name]

        def bare() -> Any:
            return [model.classify_by_labels([text], labels, **options)[0].to_dict() for text in texts]

        body = {"model": name, "texts": texts, "labels": labels, **options}
        return self._with("/classify", body, _predictions, bare)

    def _entailed(self) -> Asked:
        if self.draw.random() < 0.5:
            return self._named("sentences")
        return self._named("entails", template=["{} ?", "the {} ."] if self.draw.random() < 0.5 else [])

    def _tokenize(self) -> Asked:
        name = self.draw.choice(list(self.models)).item()
        texts = self.some(self.text)
        model = self.models[name]

        def check(reply: Any, bare: Any) -> None:
            assert [text["pieces"] for text in reply["texts"]] == bare
            index = model.tokenizer.vocabulary.index
            assert [text["ids"] for text in reply["texts"]] == [[index[piece] for piece in words] for words in bare]
            special = model.tokenizer.vocabulary.special
            assert [text["special"] for text in reply["texts"]] == [
                [piece in special for piece in words] for words in bare
            ]
            assert reply["usage"]["tokens_in"] == sum(len(words) + 2 for words in bare)
            for text, reply_text in zip(texts, reply["texts"], strict=True):
                assert all(0 <= begin < end <= len(text) for begin, end in reply_text["offsets"])

        return self._with("/tokenize", {"model": name, "texts": texts}, check, lambda: model.pieces(texts))

    def _attention(self) -> Asked:
        name = self.draw.choice(list(self.models)).item()
        text = f"the {self.text(8)[:60]}"
        model = self.models[name]

        def check(reply: Any, bare: Any) -> None:
            assert reply["pieces"] == ["[CLS]", *model.pieces([text])[0], "[SEP]"]
            assert reply["usage"]["tokens_in"] == len(bare["pieces"])
            np.testing.assert_allclose(np.array(reply["attention"]), np.array(bare["attention"]), atol=2e-4)
            assert {key: reply[key] for key in bare if key != "attention"} == {
                key: value for key, value in bare.items() if key != "attention"
            }

        return self._with("/attention", {"model": name, "text": text}, check, lambda: model.attention(text).to_dict())

    def _with(self, path: str, body: Any, check: Callable[[Any, Any], None], bare: Callable[[], Any]) -> Asked:
        result: list[Any] = []

        def library() -> Any:
            result.append(bare())
            return result[0]

        return Asked(path, body, lambda reply: check(reply, result[0]), library)


def _predictions(reply: Any, bare: Any) -> None:
    close(reply["predictions"], bare)


def _tuple(text: str | list[str]) -> Any:
    return text if isinstance(text, str) else tuple(text)


def _check(asked: Asked, reply: Reply) -> bool:
    """Whether the request was answered; the server refuses what the library refuses, with the same message."""
    refusal = _refusal(asked)
    if refusal:
        assert reply.status == 422, (asked, reply)
        assert _wanted(reply.error) == _wanted(refusal)
        return False
    assert reply.status == 200, (asked, reply)
    usage = reply.json["usage"]
    assert usage["tokens_in"] == usage["tokens_used"] + usage["tokens_cut"]
    assert usage["tokens_in"] > 0
    assert usage["tokens_cut"] >= 0
    asked.check(reply.json)
    return True


def _refusal(asked: Asked) -> str:
    """The library's error for a request; empty if there is none."""
    try:
        asked.library()
    except BertsmithError as error:
        return str(error)
    return ""


def _wanted(sentence: str) -> str:
    """The expected part of a message, without the place."""
    return sentence[sentence.index("expected") :].split("; found", maxsplit=1)[0].split(" in ", maxsplit=1)[0]


def _serve_and_compare(models: dict[str, Model], seed: int, count: int, **limits: int) -> int:
    draw = Draw(models, seed)
    asked = [draw.asked() for _ in range(count)]
    replies = replies_to(models, *((request.path, request.body) for request in asked), **limits)
    return sum(_check(request, reply) for request, reply in zip(asked, replies, strict=True))


@pytest.mark.filterwarnings("ignore::bertsmith.base.core.errors.CutWarning")
@pytest.mark.parametrize(("seed", "batch_tokens"), [(0, 2048), (1, 64), (2, 1)])
def test_random_requests_are_answered_as_the_library_answers_each_item_alone(
    models: dict[str, Model], seed: int, batch_tokens: int
) -> None:
    answered = _serve_and_compare(models, seed, 100, batch_tokens=batch_tokens)
    assert answered > 80, "only a few of these requests are mistakes"


@pytest.mark.filterwarnings("ignore::bertsmith.base.core.errors.CutWarning")
@pytest.mark.slow
def test_a_thousand_random_requests_are_answered_as_the_library_does(models: dict[str, Model]) -> None:
    assert _serve_and_compare(models, 3, 1000) > 800
