"""Server metrics in the Prometheus text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)


class Metrics:
    """The metrics of one server.

    Attributes:
        requests: replies by route and status.
        seconds: time from the first byte of a request to the last byte of its reply, by route.
        open_requests: requests without a reply yet.
        connections: open connections.
        refused_connections: excess connections, "refused" with a reply or "aborted" without one.
        held_bytes: bytes of the bodies of open requests.
        texts: texts processed, by model and ability.
        tokens: tokens by model and kind: in, used, cut.
        pieces: pieces of texts by model and kind: all, unknown.
        text_tokens: tokens of each text, by model.
        cut_texts: truncated texts, by model.
        confidence: the probability of each answer that has one, by model.
        unanswered: texts on which a model abstained, by model.
        training: by model and value, what its folder says of the training texts: mean tokens, shares of unknown pieces
            and of truncated texts, and the mean confidence on dev texts.
        batch_tokens: tokens per batch, by model.
        batch_seconds: seconds per batch, by model.
        waiting: waiting texts, by model.
        dropped: dropped requests by model and reason: "client_gone", "timeout" or "cancelled" before the model started
            on them, "aborted" after.
        ready: 1 while the models accept requests; 0 before that and after SIGTERM.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "bertsmith_requests", "Replies by route and status.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "bertsmith_request_seconds", "Seconds until the reply.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.open_requests = Gauge("bertsmith_open_requests", "Requests without a reply yet.", registry=registry)
        self.connections = Gauge("bertsmith_connections", "Open connections.", registry=registry)
        self.refused_connections = Counter(
            "bertsmith_refused_connections",
            "Excess connections, refused with a reply or aborted.",
            ["how"],
            registry=registry,
        )
        self.held_bytes = Gauge("bertsmith_held_bytes", "Bytes of the bodies of open requests.", registry=registry)
        self.texts = Counter("bertsmith_texts", "Texts processed by a model.", ["model", "ability"], registry=registry)
        self.tokens = Counter(
            "bertsmith_tokens", "Tokens received, used and truncated.", ["model", "kind"], registry=registry
        )
        self.pieces = Counter(
            "bertsmith_pieces", "Pieces of texts: all, unknown.", ["model", "kind"], registry=registry
        )
        self.text_tokens = Histogram(
            "bertsmith_text_tokens", "Tokens of a text.", ["model"], buckets=_TOKENS, registry=registry
        )
        self.cut_texts = Counter("bertsmith_cut_texts", "Truncated texts.", ["model"], registry=registry)
        self.confidence = Histogram(
            "bertsmith_confidence", "Probability of an answer.", ["model"], buckets=_SHARES, registry=registry
        )
        self.unanswered = Counter(
            "bertsmith_unanswered_texts",
            "Texts on which a model abstained, for a wanted accuracy.",
            ["model"],
            registry=registry,
        )
        self.training = Gauge(
            "bertsmith_training",
            "What the model folder says of the training texts.",
            ["model", "value"],
            registry=registry,
        )
        self.batch_tokens = Histogram(
            "bertsmith_batch_tokens", "Tokens per batch.", ["model"], buckets=_TOKENS, registry=registry
        )
        self.batch_seconds = Histogram(
            "bertsmith_batch_seconds", "Seconds per batch.", ["model"], buckets=_SECONDS, registry=registry
        )
        self.waiting = Gauge("bertsmith_waiting_texts", "Texts waiting for a model.", ["model"], registry=registry)
        self.dropped = Counter(
            "bertsmith_dropped_requests",
            "Dropped requests, by reason; 'aborted' if the model had started.",
            ["model", "reason"],
            registry=registry,
        )
        self.ready = Gauge("bertsmith_ready", "1 while the models accept requests.", registry=registry)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self._registry)
