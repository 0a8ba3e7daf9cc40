"""What is counted about a server, in the form that Prometheus reads."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)


class Metrics:
    """The counters of one server.

    Attributes:
        requests: replies by route and status.
        seconds: from the first byte of a request to the last of its reply, by route.
        open_requests: requests that are not answered yet.
        connections: that are open.
        refused_connections: by how: "refused" with a reply, or "aborted" without one.
        held_bytes: what their bodies take.
        texts: texts that went through a model, by model and ability.
        tokens: by model and kind: in, used, cut.
        batch_tokens: of the batches that a model was given, by model.
        batch_seconds: that it took for them, by model.
        waiting: texts that wait, by model.
        dropped: requests that were dropped, by model and reason: "client_gone", "timeout" or "cancelled" before the
            model began, "aborted" if it had begun.
        ready: 1 when every model can be asked, and 0 before, and after SIGTERM.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "bertsmith_requests", "Replies by route and status.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "bertsmith_request_seconds", "Seconds to the reply.", ["route"], buckets=_SECONDS, registry=registry
        )
        self.open_requests = Gauge("bertsmith_open_requests", "Requests without a reply yet.", registry=registry)
        self.connections = Gauge("bertsmith_connections", "Open connections.", registry=registry)
        self.refused_connections = Counter(
            "bertsmith_refused_connections",
            "Connections too many, by how: refused or aborted.",
            ["how"],
            registry=registry,
        )
        self.held_bytes = Gauge("bertsmith_held_bytes", "Bytes of the bodies of open requests.", registry=registry)
        self.texts = Counter(
            "bertsmith_texts", "Texts that went through a model.", ["model", "ability"], registry=registry
        )
        self.tokens = Counter(
            "bertsmith_tokens", "Tokens that came in, were used, were cut.", ["model", "kind"], registry=registry
        )
        self.batch_tokens = Histogram(
            "bertsmith_batch_tokens", "Tokens of a batch.", ["model"], buckets=_TOKENS, registry=registry
        )
        self.batch_seconds = Histogram(
            "bertsmith_batch_seconds", "Seconds of a batch.", ["model"], buckets=_SECONDS, registry=registry
        )
        self.waiting = Gauge("bertsmith_waiting_texts", "Texts that wait for a model.", ["model"], registry=registry)
        self.dropped = Counter(
            "bertsmith_dropped_requests",
            "Requests dropped: why, before compute; or aborted in it.",
            ["model", "reason"],
            registry=registry,
        )
        self.ready = Gauge("bertsmith_ready", "1 when every model can be asked.", registry=registry)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
