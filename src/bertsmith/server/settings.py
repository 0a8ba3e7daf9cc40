"""What a server takes, and for how long: every limit in one place."""

import dataclasses

from bertsmith.settings import help_field, require

BATCH_TOKENS_ON_PROCESSOR, BATCH_TOKENS_ON_GPU = 2048, 32_768
_NODES_BESIDE = 1000  # of a body, for what clients add


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The limits of a server.

    Raises:
        ConfigError: a value is impossible.
    """

    max_texts: int = help_field(2048, "texts of one request at most")
    max_characters: int = help_field(2_000_000, "characters of one request at most")
    max_tokens: int = help_field(262_144, "tokens of one request at most")
    max_body: int = help_field(8_388_608, "bytes of one request at most")
    max_waiting: int = help_field(4096, "texts that may wait for a model; who brings more is told when to come back")
    max_held: int = help_field(134_217_728, "bytes of all unanswered requests at most")
    max_connections: int = help_field(512, "connections that are served; who comes then is told to come back")
    batch_tokens: int = help_field(0, "tokens that go through a model together; 0: 2,048, on a GPU 32,768")
    request_seconds: float = help_field(120.0, "seconds until an answer at most, waiting included")
    read_seconds: float = help_field(30.0, "seconds in which a request must have arrived")
    write_seconds: float = help_field(30.0, "seconds for which a client may leave an answer unread (Linux)")
    leave_seconds: float = help_field(0.5, "seconds after SIGTERM in which new connections are still taken")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("batch_tokens", "leave_seconds") else 1 if isinstance(value, int) else 0.001
            require(
                least <= value < 2**53,
                expected=f"{field.name} of at least {least}",
                found=value,
                fix=f"raise {field.name}",
            )

    @property
    def max_nodes(self) -> int:
        """Lists, objects and keys in the JSON of one request at most; a question with endings has four."""
        return 4 * self.max_texts + _NODES_BESIDE

    @property
    def max_marks(self) -> int:
        """These, strings and commas in the JSON of one request at most; a word has two."""
        return 2 * self.max_tokens + 2 * self.max_nodes

    def tokens_of_batch(self, device: str) -> int:
        """The token budget of a batch on a device, "cpu" or "cuda:N"."""
        on_processor = device.startswith("cpu")
        return self.batch_tokens or (BATCH_TOKENS_ON_PROCESSOR if on_processor else BATCH_TOKENS_ON_GPU)
