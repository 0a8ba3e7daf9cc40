"""The parameters of `bertsmith serve`: all limits of a server, and what it accepts."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.base.core.parameters import HEAD, ComputeSettings, optional
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import help_field, require, require_limits, require_number, require_other

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead

BATCH_TOKENS_ON_PROCESSOR, BATCH_TOKENS_ON_GPU = 2048, 32_768
_MOST_SECONDS = 10**6  # eleven days; the system counts milliseconds in 32 bits
_MOST = 2**53
_NODES_BESIDE = 1000  # extra nodes of a body, for keys that clients add


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The limits of a server, and what it accepts."""

    max_texts: int = help_field(2048, "maximum texts per request", most=_MOST)
    max_characters: int = help_field(2_000_000, "maximum characters per request", most=_MOST)
    max_tokens: int = help_field(262_144, "maximum tokens per request", most=_MOST)
    max_body: int = help_field(8_388_608, "maximum bytes per request", most=_MOST)
    max_waiting: int = help_field(
        4096, "maximum texts waiting for a model; excess requests get 429 with Retry-After", most=_MOST
    )
    max_held: int = help_field(
        536_870_912,
        "maximum bytes of all open requests and their replies; the reply to one may take half of them; models, and the "
        "words that their tokenizers keep, are not counted",
        most=_MOST,
    )
    max_connections: int = help_field(512, "maximum connections; excess ones get 503 with Retry-After", most=_MOST)
    batch_tokens: int = help_field(0, "maximum tokens per batch; 0: 2,048, on a GPU 32,768", most=_MOST)
    request_seconds: float = help_field(120.0, "timeout of a request in seconds, waiting included", most=_MOST_SECONDS)
    read_seconds: float = help_field(30.0, "timeout in seconds for receiving a request", most=_MOST_SECONDS)
    write_seconds: float = help_field(
        30.0,
        "timeout in seconds for a client to read its reply, plus the time that `write_rate` allows",
        most=_MOST_SECONDS,
    )
    # 8 Mbit/s: the largest reply of the default settings, 134 MB, frees its memory after less than three minutes.
    write_rate: int = help_field(
        1_000_000,
        "minimum bytes per second at which a client must read a large reply; slower ones are disconnected",
        most=_MOST,
    )
    leave_seconds: float = help_field(
        0.5, "seconds after SIGTERM during which new connections are still accepted", most=_MOST_SECONDS
    )

    token_ids: bool = help_field(
        False, "accept token ids of the served model's own vocabulary in place of texts in /v1/embeddings"
    )

    def __post_init__(self) -> None:
        require_limits(self)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool):
                continue
            least = 0 if field.name in ("batch_tokens", "leave_seconds") else 1 if isinstance(value, int) else 0.001
            require_number(field.name, value, least=least)

    @property
    def max_answers(self) -> int:
        """Maximum bytes that the answers of one request may take in memory."""
        return self.max_held // 2

    @functools.cached_property
    def max_nodes(self) -> int:
        """Maximum lists, objects and keys in the JSON of a request; a question with endings has four."""
        return 4 * self.max_texts + _NODES_BESIDE

    @functools.cached_property
    def max_marks(self) -> int:
        """Maximum lists, objects, keys, strings and commas in the JSON of a request; a word has two."""
        return 2 * self.max_tokens + 2 * self.max_nodes

    def seconds_to_read(self, count: int) -> float:
        """The time in which a client must read a reply of that many bytes."""
        return self.write_seconds + count / self.write_rate

    def tokens_of_batch(self, device: str) -> int:
        """The token budget of a batch on a device, "cpu" or "cuda:N"."""
        on_processor = device.startswith("cpu")
        return self.batch_tokens or (BATCH_TOKENS_ON_PROCESSOR if on_processor else BATCH_TOKENS_ON_GPU)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeRequest(Request, ServerSettings, ComputeSettings):
    """The models of a server, its address, and whom it answers."""

    model: Sequence[str] = help_field(
        (), "model folder, checkpoint, hub id, starter, minilm or NAME=DIR; repeatable", metavar="DIR", kind=list[str]
    )
    index: Sequence[str] = help_field(
        (),
        "an index to search, or NAME=INDEX, with the model that it names or with one of --model; repeatable",
        metavar="INDEX",
        kind=list[str],
    )
    port: int = help_field(8000, "0: any free port", least=0, most=65_535)
    host: str = help_field("127.0.0.1", "address to listen on; 0.0.0.0 allows other machines")
    api_key_file: str | Path | None = help_field(
        None, "a file whose first line is the key that requests must send", metavar="FILE", path=True, kind=Path
    )
    index_key_file: str | Path | None = help_field(
        None,
        "a file whose first line is the key for requests that change an index; without it, none is changed",
        metavar="FILE",
        path=True,
        kind=Path,
    )
    allow_host: Sequence[str] = help_field(
        (), "answer requests for this host name too, * for any; repeatable", metavar="NAME", kind=list[str]
    )
    head: "type[OwnHead] | None" = optional(None, HEAD)
    replace: str | None = help_field(
        None,
        "the model that is replaced, or NAME=DIR if several are served: the new one is served only if few answers to "
        "the texts of --on change, as `upgrade` counts them",
        metavar="DIR",
    )
    on: str | Path | None = help_field(
        None,
        "texts, as for `upgrade`, on which --replace and every reload (SIGHUP, POST /reload) compare the models",
        metavar="TEXTS",
        path=True,
        kind=Path,
    )
    most: float = help_field(
        0.1, "with --on: the largest share of answers that may change", least=0, most=1, metavar="SHARE"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.model or self.index), expected="models to serve", found="none", fix="name one with --model")
        require_other(self.index_key_file is None or bool(self.index), "--index-key-file", "--index")
        require_other(self.replace is None or self.on is not None, "--replace", "--on")
        require_other("most" not in self.given or self.on is not None, "--most", "--on")
