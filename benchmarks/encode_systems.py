"""What the benchmarks of encoding ask of a runtime.

A system takes rows of token ids and returns one vector per row. `prepare` converts the rows to the system's preferred
form and is not timed; padding, sorting and pooling are part of its work and are timed. `ways` lists the configurations
that its manual recommends for speed; the fastest one on the given texts is measured.
"""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from encode_texts import Ids
from harness import instruction_limits
from peer_models import ModelFiles

from bertsmith.base.machine.runtime import fast_precisions

Vectors = npt.NDArray[np.float32]
DEFAULT_BATCH = 32


class UnavailableError(Exception):
    """A system cannot run here; the message says why."""


class Manner(NamedTuple):
    """How rows are batched for a system.

    Attributes:
        batch: rows per batch.
        by_length: sort by length first.
    """

    batch: int = DEFAULT_BATCH
    by_length: bool = False


class System(ABC):
    """A model in one runtime.

    Args:
        files: the model.
        precision: "fp32", "bf16" or "int8".
        threads: total number of threads.
        workers: batches that run concurrently, each with an equal number of threads.

    Attributes:
        ran: how the runtime says that it runs.
    """

    engine: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16")
    can_be_limited: ClassVar[bool] = True  # to some instructions of the processor

    def __init__(self, files: ModelFiles, precision: str, threads: int, workers: int = 1) -> None:
        self.files, self.precision, self.threads, self.workers = files, precision, threads, workers
        self.ran: dict[str, Any] = {"workers": workers} if workers > 1 else {}
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None

    @classmethod
    def require(cls, precision: str) -> None:
        """Returns if the runtime is installed and this processor supports the precision.

        Raises:
            UnavailableError: one of the two is not the case.
        """
        if precision not in cls.precisions:
            raise UnavailableError(f"has no {precision}")
        absent = [package for package in cls.packages if importlib.util.find_spec(package) is None]
        if absent:
            raise UnavailableError(f"{', '.join(absent)} is not installed")
        if instruction_limits() and not cls.can_be_limited:
            raise UnavailableError("it cannot be limited to some instructions of the processor")
        if precision == "bf16" and "bf16" not in fast_precisions("cpu"):
            raise UnavailableError("this processor does not compute in bf16")

    @classmethod
    def ways(cls, precision: str, threads: int) -> list[dict[str, Any]]:
        """Candidate constructor arguments for the best setting; the first ones are the default."""
        return [{}]

    def prepare(self, rows: Sequence[Ids]) -> Any:
        """The rows in this system's preferred form: a sized container of rows."""
        return [row.astype(np.int64) for row in rows]

    def encode(self, prepared: Any, manner: Manner) -> Vectors:
        """One vector per row, float32 [rows, width], in order."""
        order = np.arange(len(prepared))
        if manner.by_length:
            # Longest first, so that workers finish at about the same time.
            order = np.argsort([-len(row) for row in prepared], kind="stable")
        parts = [order[start : start + manner.batch] for start in range(0, len(order), manner.batch)]
        batches = ([prepared[index] for index in part] for part in parts)
        answers = map(self.answer, batches) if self._pool is None else self._pool.map(self.answer, batches)
        encoded = np.concatenate(list(answers))
        vectors = np.empty(encoded.shape, dtype=np.float32)
        vectors[order] = encoded
        return vectors

    @abstractmethod
    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of one batch, float32 [rows, width]."""
