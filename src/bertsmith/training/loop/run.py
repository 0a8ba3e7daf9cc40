"""A run of a command: its processes, its folder, whether it is resumed, its lock and its record.

::

    with Run.open(out, resume=resume, device=settings.device) as run:  # the folder is new, or holds a run to resume
        corpus = run.on_every_rank(lambda: Corpus.open(path))          # what does not fit is refused before it exists
        run.start(record, digests, may_change=("corpus",))             # locked until the end; RUN/settings.json
        result = train(workload, training, run.folder, rank=run.rank)
        run.on_first_rank(lambda: write_report([run.path]))
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bertsmith.base.core.requests import Request, to_file
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.processes import distributed
from bertsmith.base.storage.files import write_text
from bertsmith.base.storage.locks import locked_folder, require_new_or_started
from bertsmith.training.loop.run_folder import REQUEST_FILE, SETTINGS_FILE, RunFolder, is_run

Result = TypeVar("Result")


class Run:
    """A run in progress, for one of the processes that make it together; use `Run.open`.

    Attributes:
        path: its folder.
        rank: this process among those of the run.
        is_resumed: whether it has been started before.
        before: the content of settings.json if it has one when it is resumed, on every rank; else nothing.
        folder: the folder with its record, after `start`.
    """

    folder: RunFolder

    def __init__(self, path: Path, rank: Rank, held: contextlib.ExitStack, *, is_resumed: bool) -> None:
        self.path, self.rank, self.is_resumed, self._held = path, rank, is_resumed, held
        self.before: Mapping[str, Any] = {}

    @staticmethod
    @contextlib.contextmanager
    def open(
        path: str | Path,
        *,
        resume: bool = False,
        device: str = "auto",
        parts: Collection[str] = (SETTINGS_FILE,),
        besides: Collection[str] = (),
        rank: Rank | None = None,
    ) -> Iterator["Run"]:
        """The run in a folder that is new, or that holds a started run, in the process group of `torchrun`.

        Args:
            resume: resume the run in the folder. If `torchrun` has restarted the processes, the run that they had
                started is resumed in any case.
            parts: entries of the folder, of which a started run has at least one; "" is the folder itself.
            besides: entries that a new run may find in its folder, see `run_folder.PREPARED`.
            rank: this process among those that share a run inside another one, which decides whether it is resumed.

        Raises:
            RunError: the folder is not empty, or there is no run to resume; or a process ended before the others.
        """
        path, is_inner, rank = Path(path), rank is not None, rank or Rank.from_environment()
        with contextlib.ExitStack() as held:
            if rank.count > 1:
                held.enter_context(distributed.process_group(rank, choose(device).torch_device))
            started = [path / part for part in parts]
            is_resumed = resume if is_inner else distributed.started_before(resume, rank, *started)
            run = Run(path, rank, held, is_resumed=is_resumed)
            run.on_first_rank(lambda: require_new_or_started(path, resume=is_resumed, parts=parts, besides=besides))
            run.before = run.from_first_rank(lambda: RunFolder.open(path).record if is_resumed and is_run(path) else {})
            yield run

    def start(
        self,
        record: Mapping[str, Any],
        digests: Mapping[str, str] | None = None,
        *,
        may_change: Collection[str] = (),
        request: Request | None = None,
    ) -> None:
        """Locks the folder until the end of the run, and writes or compares its settings.json.

        Args:
            record, digests, may_change: see `RunFolder.prepare`.
            request: the request of a new run, written as request.toml: a settings file that starts the same run.
        """
        self._held.enter_context(self.locked())
        values = {name: getattr(request, name, None) for name in digests or {}}
        inputs = {name: Path(value) for name, value in values.items() if isinstance(value, str | Path)}
        self.folder = RunFolder.prepare(
            self.path, record, digests, resume=self.is_resumed, rank=self.rank, may_change=may_change, inputs=inputs
        )
        if request is not None and not self.is_resumed:
            self.on_first_rank(lambda: write_text(self.path / REQUEST_FILE, to_file(request)))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock of the folder, for work before a run in the same folder, which takes it again."""
        with contextlib.ExitStack() as held:
            lock = locked_folder(self.path, create=not self.is_resumed)
            self.on_first_rank(lambda: held.enter_context(lock))
            yield

    def on_first_rank(self, work: Callable[[], Result]) -> Result | None:
        """The result of `work` on rank 0, which alone does it; None on the others, which wait."""
        return distributed.on_first_rank(work, self.rank)

    def from_first_rank(self, work: Callable[[], Any]) -> Any:
        """The result of `work`, plain values, on every rank; rank 0 alone does it."""
        return distributed.result_of_first_rank(work, self.rank)

    def on_every_rank(self, work: Callable[[], Result]) -> Result:
        """The result of the `work` of this rank; returns when all ranks are done."""
        return distributed.on_every_rank(work, self.rank)

    def in_turn(self, work: Callable[[], Result]) -> Result:
        """The result of the `work` of this rank; rank 0 goes first, and writes what the others read."""
        return distributed.in_turn(work, self.rank)

    def has(self, path: Path) -> bool:
        """Whether a file or folder of the run is there, as rank 0 sees it."""
        return bool(self.from_first_rank(path.exists))
