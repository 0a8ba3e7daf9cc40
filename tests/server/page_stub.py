"""A server with the same API and fixed answers, to test the page without a model."""

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import bertsmith.app.server

PAGE = Path(bertsmith.app.server.__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
WEAK = "this model is weak: on its 80 dev examples it was not better than the baseline 'bag of words'"
UNKNOWN = "2 words not in the training stories or too rare there, read as unknown"
CROWDED = "the passages have a mean cosine of 0.95 with one another"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

PARTS = [" and", " the café", " closed"]  # of a text that is streamed
KINDS_OF_CODES = {"diagnosis": ["flu", "gout"], "medication": ["rest"]}


def model_of(name: str, task: str | None, *abilities: str, labels: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """One entry of GET /models."""
    always = {"name": name, "task": task, "labels": list(labels), "pair": None if task is None else False, "width": 3}
    always |= {
        "weakness": "",
        "thresholds": [],
        "calibrated_on": 0,
        "max_length": 512,
        "embed_length": 128,
        "max_question": 64 if task == "span" else 0,
    }
    return {**always, "abilities": [*abilities, "embed", "features", "attention", "pieces"], **more}


MODELS = [
    model_of("novels", None, "fill", "complete", "next_sentence", "rerank", "classify_by_labels"),
    model_of("reviews", "classification", "classify", labels=("negative", "positive")),
    model_of(
        "mails",
        "classification",
        "classify",
        labels=("Not Spam", "Spam"),
        weakness=WEAK,
        thresholds=[{"accuracy": 0.95}, {"coverage": 0.9}],
        calibrated_on=200,
    ),
    model_of("same", "classification", "classify", "rerank", labels=("different", "same"), pair=None),
    model_of("likeness", "regression", "score", "rerank", pair=True),
    model_of("endings", "choice", "choose"),
    model_of("names", "tagging", "tag", labels=("O", "B-PER", "B-LOC")),
    model_of("answers", "span", "answer"),
    model_of("replies", "generation", "generate"),
    model_of("extracts", "extraction", "extract"),
    model_of("pronouns", "coreference", "resolve"),
    model_of(
        "clips", "pretraining", abilities=["fill_codes", "next_codes", "match_codes"], kinds={"code": ["0.1", "0.2"]}
    ),
    model_of("repairs", None, "search"),
    model_of("facts", "memory", abilities=["answer_from_memory"], max_length=3),
    model_of("visits", "codes", abilities=["predict_codes", "find_anomalies"], kinds=KINDS_OF_CODES, weakness=WEAK),
]


def vector_of(text: str) -> list[float]:
    """Three numbers that depend on the text."""
    return [1.0 + text.count("a"), 1.0 + text.count("e"), float(len(text) % 7)]


def spans_of(text: str, words: Mapping[str, str]) -> list[dict[str, Any]]:
    """The offsets of some words in a text, in code points, with their types."""
    return [
        {"type": kind, "text": word, "begin": text.index(word), "end": text.index(word) + len(word), "probability": 0.9}
        for word, kind in words.items()
        if word in text
    ]


def pieces_of(text: str) -> list[str]:
    """Words; long ones are split into two pieces."""
    cut = [[word] if len(word) < 8 else [word[:5], f"##{word[5:]}"] for word in text.split()]
    return [piece for word in cut for piece in word]


def attention_of(size: int, layers: int = 3, heads: int = 4) -> list[Any]:
    """Weights in which head h attends h pieces back, more sharply in higher layers."""

    def row(layer: int, head: int, at: int) -> list[float]:
        raw = [math.exp(-(layer + 1) * abs(at - head - to) / 2) for to in range(size)]
        return [round(weight / sum(raw), 4) for weight in raw]

    return [[[row(layer, head, at) for at in range(size)] for head in range(heads)] for layer in range(layers)]


def named(text: str, span: list[int]) -> dict[str, Any]:
    """A mention of a text."""
    return {"text": text[slice(*span)], "start": span[0], "end": span[1]}


def answer_of(path: str, asked: dict[str, Any], models: list[dict[str, Any]]) -> dict[str, Any]:
    """The reply to a POST."""
    usage = {"tokens_in": 12, "tokens_used": 12, "tokens_cut": 0}
    if path == "/predict" and "questions" in asked:
        shares = {"0": 0.1, "1": 0.7, "2": 0.2}
        return {"predictions": [{"label": "1", "probabilities": shares}], "usage": usage}
    if path == "/predict":
        if asked["model"] == "likeness":
            return {"predictions": [{"value": 3.456}], "usage": usage}
        text = asked["texts"][0]
        if asked["model"] == "replies":
            answers = [{"text": "At ten.", "score": -0.5}, {"text": "At two.", "score": -1.25}]
            written = {**answers[0], "has_ended": "?" in text, "answers": answers, "cut_tokens": 0}
            return {"predictions": [written], "usage": usage}
        if asked["model"] == "extracts":
            chosen = {"text": text[:9], "index": 0, "start": 0, "end": 9, "score": 0.75}
            answer = {"text": text[:9], "sentences": [chosen], "scores": [0.75, 0.5], "cut_tokens": 0}
            return {"predictions": [answer], "usage": usage}
        if text == "long":
            usage = {"tokens_in": 612, "tokens_used": 512, "tokens_cut": 100}
        labels = next(model["labels"] for model in models if model["name"] == asked["model"])
        shares = dict(zip(labels, (0.0004, 0.9996), strict=True))
        answer = {"label": None, "chosen": []} if "accuracy" in asked else {"label": labels[1]}
        return {"predictions": [{**answer, "probabilities": shares}], "usage": usage}
    if path == "/fill":
        gap = [{"piece": piece, "probability": p} for piece, p in (("head", 0.62), ("##room", 0.2), ("town", 0.01))]
        return {"predictions": [{"gaps": [gap] * asked["texts"][0].count("[MASK]")}], "usage": usage}
    if path == "/complete":
        following = [{"piece": piece, "probability": p} for piece, p in (("on", 0.5), ("off", 0.25))]
        said = {"text": asked["texts"][0], "next": following, "continuation": "".join(PARTS), "direction": "forward"}
        return {"predictions": [said], "usage": usage}
    if path == "/next":
        return {"predictions": [{"probability": 0.875}], "usage": usage}
    if path == "/tag":
        text = asked["texts"][0]
        entities = spans_of(text, {"Roald Amundsen": "PER", "Oslo": "LOC", "Dušan Tadić": "PER", "Maria Silva": "PER"})
        words = [{"text": word, "begin": 0, "end": 1, "tag": "O"} for word in text.split()]
        return {"predictions": [{"entities": entities, "words": words}], "usage": usage}
    if path == "/answer":
        result = spans_of(asked["questions"][0]["context"], {"Roald Amundsen": "", "Robert Falcon Scott": ""})
        for answer, share in zip(result, (0.8, 0.15), strict=False):
            answer["probability"] = share
        none = 0.05 if result else 0.97
        if asked["questions"][0]["question"] == "long":
            usage = {"tokens_in": 90, "tokens_used": 80, "tokens_cut": 10}
        return {"predictions": [{"answers": result, "no_answer_probability": none}], "usage": usage}
    if path == "/resolve":
        (pronoun,) = asked["pronouns"]
        shares = zip(pronoun["candidates"], (0.7, 0.25), strict=True)
        names = [{**named(pronoun["text"], span), "probability": share} for span, share in shares]
        rest = {"index": 0, "pronoun": named(pronoun["text"], pronoun["pronoun"]), "none_probability": 0.05}
        return {"predictions": [{**names[0], **rest, "candidates": names, "cut_tokens": 0}], "usage": usage}
    if path == "/codes/match":
        results = [{"index": 1, "probability": 0.75, "unknown_codes": 0}, {"index": 0, "probability": 0.25}]
        return {"results": results, "usage": usage}
    if path in ("/codes/fill", "/codes/next"):
        pieces, codes = ([{name: value, "probability": 0.5}] for name, value in (("piece", "cut"), ("code", "1.0")))
        return {"predictions": [{"gaps": [pieces] * 2, "alone": [pieces] * 2, "codes": codes}], "usage": usage}
    if path == "/memory/answer":
        facts = asked["stories"][0]["facts"]
        answer = {"answer": "office", "probability": 0.875, "facts": facts, "attention": [[0.25, 0, 0.75], [0, 0, 1]]}
        return {"predictions": [answer], "usage": usage, "note": UNKNOWN}
    if path.startswith("/codes/"):
        (subject,) = asked["subjects"]
        codes = [{"code": "tea", "description": "green", "probability": 0.75}, {"code": "diet", "probability": 0.125}]
        answers = [{"codes": codes, "surprise": 1.5}] * (1 if path == "/codes/predict" else len(subject["visits"]))
        return {"predictions": answers, "usage": usage, "note": UNKNOWN}
    if path == "/v1/embeddings":
        data = [{"index": number, "embedding": vector_of(text)} for number, text in enumerate(asked["input"])]
        cut = 16 if "long" in asked["input"] else 0
        read = {"tokens_in": 44, "tokens_used": 44 - cut, "tokens_cut": cut}
        return {"data": data[::-1], "usage": {**read, "prompt_tokens": 44 - cut, "total_tokens": 44 - cut}}
    if path == "/classify":
        names = list(asked["labels"])
        shares = {name: 0.75 if number == 0 else 0.25 / (len(names) - 1) for number, name in enumerate(names)}
        answer = {"label": names[0], "chosen": names[:1], "probabilities": shares, "cut_tokens": 0}
        return {"predictions": [answer], "usage": usage, "note": ""}
    if path == "/rerank":
        scores = [{"index": number, "score": 0.9 - 0.2 * number} for number in range(len(asked["passages"]))]
        return {"results": scores[::-1], "usage": usage, "note": CROWDED}
    if path == "/search":
        rows = [("a1", "The gate was mended.", 0.8), ("b2", "Anna came late.", 0.3)]
        passages = [{"rank": n, "id": id, "text": text, "score": score} for n, (id, text, score) in enumerate(rows, 1)]
        return {"results": [{"id": "1", "query": asked["query"], "passages": passages}], "usage": usage, "note": ""}
    if path == "/tokenize":
        pieces = [piece if piece.isascii() else "[UNK]" for piece in pieces_of(asked["texts"][0])]
        ids = list(range(100, 100 + len(pieces)))
        special = [piece.startswith("[") for piece in pieces]
        return {"texts": [{"pieces": pieces, "ids": ids, "offsets": [[0, 1]] * len(pieces), "special": special}]}
    second = [*pieces_of(asked["pair"]), "[SEP]"] if "pair" in asked else []
    pieces = ["[CLS]", *pieces_of(asked["text"]), "[SEP]", *second]
    weights = attention_of(len(pieces))
    special = [piece.startswith("[") for piece in pieces]
    return {"pieces": pieces, "special": special, "layers": 3, "heads": 4, "attention": weights, "usage": usage}


class StubServer(ThreadingHTTPServer):
    """The server, with a record of its requests.

    Attributes:
        models: what it says it has.
        key: what it wants to be shown, if anything.
        refusal: status, body and headers of what it answers to every POST, if anything.
        refused_streams: the same for a text in parts.
        asked: (path, body) of every POST.
        may_continue: after the first part of a stream, the others are sent once it is set.
        has_left: whether the page has left a stream before its end.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reset()

    def reset(self) -> None:
        """Forgets what a test has changed."""
        self.models: list[dict[str, Any]] = MODELS
        self.key: str | None = None
        self.refusal: tuple[int, bytes, dict[str, str]] | None = None
        self.refused_streams: tuple[int, bytes, dict[str, str]] | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.may_continue, self.has_left = threading.Event(), threading.Event()
        self.may_continue.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: StubServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        file = PAGE / ("index.html" if path == "/" else path.removeprefix("/page/"))
        if path == "/models":
            if self._let_in():
                self._send(200, json.dumps({"models": self.server.models}).encode())
        elif file.parent == PAGE and file.is_file():
            self._send(200, file.read_bytes(), KINDS[file.suffix], {"content-security-policy": POLICY})
        else:
            self._send(404, b'{"error": {"message": "nothing here", "type": "not_found"}}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append((self.path, body))
        if not self._let_in():
            return
        if self.server.refusal is not None:
            status, answer, headers = self.server.refusal
            self._send(status, answer, more=headers)
        elif body.get("stream") and self.server.refused_streams is not None:
            status, answer, headers = self.server.refused_streams
            self._send(status, answer, more=headers)
        elif body.get("stream"):
            self._stream()
        else:
            self._send(200, json.dumps(answer_of(self.path, body, self.server.models)).encode())

    def _stream(self) -> None:
        """Sends the parts of a text as events, one of them cut inside a letter, and the end."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        events = [{"choices": [{"index": 0, "text": part}]} for part in (*PARTS, "")]
        contents = [json.dumps(event, ensure_ascii=False) for event in events]
        try:
            for content in (*contents, "[DONE]"):
                sent = f"data: {content}\n\n".encode()
                cut = sent.find("é".encode()) + 1
                self.wfile.write(sent[:cut])
                time.sleep(0.05 if cut else 0)
                self.wfile.write(sent[cut:])
                while not self.server.may_continue.wait(0.02):
                    self.wfile.write(b": waiting\n\n")
        except OSError:
            self.server.has_left.set()

    def _let_in(self) -> bool:
        if self.server.key in (None, (self.headers["authorization"] or "").removeprefix("Bearer ")):
            return True
        self._send(401, b'{"error": {"message": "expected a key", "type": "authentication_error"}}')
        return False

    def _send(
        self, status: int, body: bytes, kind: str = "application/json", more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", f"{kind}; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def stub_server() -> Iterator[StubServer]:
    """A running server; it stops at the end of the block."""
    with StubServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
