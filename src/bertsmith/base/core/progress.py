"""Progress of long-running work on stderr: what is done, the speed, the time left.

On a terminal it is one live line, in a notebook one bar; otherwise (a log file, a pipe) a plain line at most every ten
seconds. Nothing is written to stdout.
"""

import contextlib
import dataclasses
import html
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text


Lines = TypeVar("Lines", list[str], set[str])
_LONGEST_REPR = 160  # characters
SECONDS_BETWEEN_PLAIN_LINES, SECONDS_BETWEEN_BARS = 10.0, 0.5

# Control characters but the tab, ends of lines and paragraphs, and what changes the direction of the text after it.
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

_silent = 0  # number of open `quiet` blocks, over all threads
_mute = 0  # number of the blocks that silence warnings too
_said: list[set[str]] = []  # what was written in each open `said_once` block
_recorded: list[list[str]] = []  # the warnings in each open `recorded_warnings` block
_lock = threading.Lock()
_wording: ContextVar[Callable[[str], str]] = ContextVar("how lines are worded", default=str)


@contextlib.contextmanager
def quiet(*, warnings: bool = False) -> Iterator[None]:
    """Silences progress output, and `warnings` too, while the block runs, in all threads; for tests and library use."""
    global _silent, _mute
    with _lock:
        _silent += 1
        _mute += warnings
    try:
        yield
    finally:
        with _lock:
            _silent -= 1
            _mute -= warnings


@contextlib.contextmanager
def _open_block(blocks: list[Lines], lines: Lines) -> Iterator[Lines]:
    """Has the lines of a block among those of all open blocks while it runs, in all threads."""
    with _lock:
        blocks.append(lines)
    try:
        yield lines
    finally:
        with _lock:
            # By identity: blocks that overlap need not end in order, and equal lines are equal.
            blocks[:] = [entry for entry in blocks if entry is not lines]


@contextlib.contextmanager
def said_once() -> Iterator[None]:
    """Writes each line of `warn` and `tell` once while the block runs, in all threads; for work with equal parts."""
    with _open_block(_said, set()):
        yield


def recorded_warnings() -> contextlib.AbstractContextManager[list[str]]:
    """A block that gets the text of each warning while it runs, in all threads, as a list; it is written as well."""
    return _open_block(_recorded, [])


def short_repr(result: Any) -> str:
    """A line on a result, for a session of Python: its first lines of text, or else its plain values and its sizes.

    >>> short_repr(dataclasses.make_dataclass("Summary", ["texts", "words"])(1200, ["a", "b"]))
    '<Summary: texts 1,200; words 2>'
    """
    names = [field.name for field in dataclasses.fields(result)]
    parts = (
        result.lines() if hasattr(result, "lines") else [_brief_value(name, getattr(result, name)) for name in names]
    )
    shown = ""
    for part in filter(None, parts):
        if shown and len(shown) + len(part) > _LONGEST_REPR:
            break
        shown += f"; {part}" if shown else part
    shown = f"{shown[:_LONGEST_REPR]} ..." if len(shown) > _LONGEST_REPR else shown
    return visible(f"<{type(result).__name__}: {shown}>")


def _brief_value(name: str, value: Any) -> str:
    """A plain value with its name, or the shape or the number of several; "" for any other."""
    if isinstance(value, bool | str | os.PathLike):
        return f"{name} {value}"
    if isinstance(value, int | float):
        return f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}"
    if hasattr(value, "shape"):
        return f"{name} {' x '.join(f'{size:,}' for size in value.shape)}"
    return f"{name} {len(value):,}" if hasattr(value, "__len__") else ""


def visible(text: str) -> str:
    r"""A text on one line: what a terminal would obey in it, or take for the end of a line, is shown as an escape.

    >>> print(visible("red: \x1b[31m\n\u202e"))
    red: \x1b[31m\x0a\u202e
    """
    return _CONTROLS.sub(
        lambda match: f"\\u{ord(match[0]):04x}" if match[0] > "\xff" else f"\\x{ord(match[0]):02x}", text
    )


def warn(text: str) -> None:
    """Writes a one-line warning to stderr, even when quiet, if something is not done exactly as requested."""
    line = " ".join(text.split())
    with _lock:
        for lines in _recorded:
            lines.append(line)
    if not _mute:
        _say(f"warning: {line}")


def tell(text: str) -> None:
    """Writes one line to stderr, unless quiet, with something the user should know before work starts."""
    if not _silent:
        _say(" ".join(text.split()))


def tell_row(text: str) -> None:
    """As `tell`, but keeps the spaces of the line, which align it with others: a row of a table or chart."""
    if not _silent:
        _say(text)


@contextlib.contextmanager
def worded(wording: Callable[[str], str]) -> Iterator[None]:
    """A context in which lines to stderr are worded by a function, such as one that names parameters, not options.

    Recorded warnings stay as they are.
    """
    before = _wording.get()
    token = _wording.set(lambda line: before(wording(line)))
    try:
        yield
    finally:
        _wording.reset(token)


def _say(line: str) -> None:
    line = _wording.get()(line)
    with _lock:
        if any(line in said for said in _said):
            return
        for said in _said:
            said.add(line)
    sys.stderr.write(f"{visible(line)}\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """A duration in readable form.

    >>> duration(0.42), duration(5.2), duration(75), duration(3720)
    ('0.4 s', '5 s', '1 min 15 s', '1 h 02 min')
    """
    if 0 < seconds < 1:
        return f"{max(seconds, 0.001):.1g} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def amount(count: float) -> str:
    """A count in readable form.

    >>> amount(950), amount(12_300), amount(4_560_000)
    ('950', '12.3 k', '4.6 M')
    """
    for limit, scale, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if count >= limit:
            return f"{count / scale:.1f} {letter}"
    return f"{count:.0f}" if count >= 10 else f"{count:.3g}"


def shown_p(value: float) -> str:
    """A p-value with its sign of relation, to four decimal places.

    >>> shown_p(0.03125), shown_p(1e-9)
    ('= 0.0312', '< 0.0001')
    """
    shown = f"{value:.4f}"
    return f"= {shown}" if float(shown) else "< 0.0001"


def counted(count: int, noun: str, several: str = "") -> str:
    """A count followed by its noun, singular or plural.

    >>> counted(1, "text"), counted(0, "text"), counted(1200, "process", "processes")
    ('1 text', '0 texts', '1,200 processes')
    """
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def unseen(share: float) -> None:
    """Shows nothing: for work that is too short for a progress bar, or is a part of other work."""


class _NotebookBar:
    """A bar with a line in the output of a notebook's cell, updated in place."""

    def __init__(self, display: Any) -> None:
        self._handle = display(self._bundle("", None), raw=True, display_id=True)

    def show(self, line: str, share: float | None) -> None:
        """Shows a line, next to a bar that is full for a share of 1 and moves for None; nothing for an empty line."""
        self._handle.update(self._bundle(line, share), raw=True)

    @staticmethod
    def _bundle(line: str, share: float | None) -> dict[str, str]:
        value = "" if share is None else f' value="{share:.4f}"'
        return {"text/plain": line, "text/html": f"<progress{value}></progress> {html.escape(line)}" if line else ""}


def _notebook_bar() -> _NotebookBar | None:
    """A bar, if this is a notebook, whose kernel has loaded IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    return _NotebookBar(sys.modules["IPython"].display.display)


class Progress:
    """Shows the progress of a task; use it as a context manager.

    Args:
        done: units completed earlier, if the work is resumed.
        how: how the work is done, such as the precision; shown on the last line.
        least: seconds of work below which there is no last line, for parts that are often short.
    """

    def __init__(
        self,
        label: str,
        total: float | None = None,
        unit: str = "items",
        done: float = 0,
        how: str = "",
        least: float = 0.0,
    ) -> None:
        self.label, self.total, self.unit, self.how, self.least = label, total, unit, how, least
        self.done, self._already = done, done
        self.note = ""
        self._started = self._last_line = time.monotonic()
        self._live: Live | None = None
        self._bar: _NotebookBar | None = None

    def __enter__(self) -> "Progress":
        self._started = self._last_line = time.monotonic()
        if not _silent and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._text)
            self._live.__enter__()
        elif not _silent:
            self._bar = _notebook_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None
        if self._bar is not None:
            self._bar.show("", None)
            self._bar = None
        spent = time.monotonic() - self._started
        if not _silent and kind is None and spent >= self.least:
            done = f"{amount(self.done)} {self._units(self.done)}"
            how = f", {self.how}" if self.how else ""
            rate = f", {self._rate(spent)}" if spent >= 1 else ""
            print(visible(f"{self.label}: {done} in {duration(spent)}{rate}{how}{self._tail()}"), file=sys.stderr)

    def advance(self, count: float = 1, note: str = "") -> None:
        """Counts `count` more units; `note` is shown at the end of the line."""
        self.done += count
        if note:
            self.note = note
        now = time.monotonic()
        bar = self._bar  # another thread may end the work meanwhile
        pause = SECONDS_BETWEEN_PLAIN_LINES if bar is None else SECONDS_BETWEEN_BARS
        if self._live is None and not _silent and now - self._last_line >= pause:
            self._last_line = now
            if bar is None:
                print(self.line(), file=sys.stderr, flush=True)
            else:
                bar.show(self.line(), min(1.0, self.done / self.total) if self.total else None)

    def line(self) -> str:
        """The current progress line."""
        spent = max(time.monotonic() - self._started, 1e-9)
        rate = (self.done - self._already) / spent
        # Of things that are counted, those that are finished; work may also advance by a share of one.
        done = math.floor(self.done + 1e-6) if self.total is not None and self.total == round(self.total) else self.done
        parts = [f"{self.label}: {amount(done)}"]
        if self.total is not None:
            share = self.done / self.total if self.total else 1.0
            parts[0] += f" of {amount(self.total)} {self._units(self.total)} ({share:.0%})"
        else:
            parts[0] += f" {self._units(self.done)}"
        parts.append(self._rate(spent))
        if self.total is not None and rate > 0:
            parts.append(f"{duration(max(self.total - self.done, 0) / rate)} left")
        return visible(", ".join(parts) + self._tail())

    def _rate(self, seconds: float) -> str:
        return f"{amount((self.done - self._already) / seconds)} {self.unit}/s"

    def _units(self, count: float) -> str:
        if count != 1:
            return self.unit
        return f"{self.unit[:-3]}y" if self.unit.endswith("ies") else self.unit.removesuffix("s")

    def _tail(self) -> str:
        return f" · {self.note}" if self.note else ""

    def _text(self) -> "Text":
        from rich.text import Text

        return Text(self.line(), overflow="ellipsis", no_wrap=True)
