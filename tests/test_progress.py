"""Notes on stderr: which lines are written, and how often."""

import io
import re
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from bertsmith.base.core import progress
from bertsmith.base.core.progress import Progress, said_once, tell, tell_row, visible, warn


def heard(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to stderr from now on; pytest replaces it when a test begins."""
    stream = io.StringIO()
    monkeypatch.setattr(progress, "_silent", 0)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_line_is_said_once_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = heard(monkeypatch)
    with said_once():
        tell("a file")
        tell("a file")
        warn("a file")
    tell("a file")
    assert stderr.getvalue() == "a file\nwarning: a file\na file\n"


def test_blocks_that_overlap_forget_their_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of two threads do: the first one ends while the second is open."""
    stderr = heard(monkeypatch)
    first, second = said_once(), said_once()
    first.__enter__()
    warn("one")
    second.__enter__()
    first.__exit__(None, None, None)
    warn("one")
    warn("one")
    second.__exit__(None, None, None)
    assert stderr.getvalue() == "warning: one\n" * 2


HOSTILE = "a\x1b[2J\x9b\r\n\x0b\x85\u2028\u202eb\u2066\x7f\x00"
HARMLESS = r"a\x1b[2J\x9b\x0d\x0a\x0b\x85\u2028\u202eb\u2066\x7f\x00"


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("say", [tell, warn, tell_row])
def test_control_characters_are_escapes_at_a_terminal_and_in_a_pipe(monkeypatch, say, terminal: bool) -> None:
    stderr = heard(monkeypatch)
    monkeypatch.setattr(stderr, "isatty", lambda: terminal)
    say("a\x1b[2J\x9b\u202e")
    assert stderr.getvalue().endswith("a\\x1b[2J\\x9b\\u202e\n")
    assert visible(HOSTILE) == HARMLESS
    assert visible("an \u200f Arabic mark,\ta tab") == "an \u200f Arabic mark,\ta tab"


def test_progress_lines_have_no_control_characters(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(progress, "_silent", 0)
    with Progress(HOSTILE, 2, unit="parts") as shown:
        shown.advance(1, note=HOSTILE)
        assert shown.line().count(HARMLESS) == 2
    assert capsys.readouterr().err.startswith(HARMLESS)


def test_short_work_has_no_last_line_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_silent", 0)
    for least in (60.0, 0.0):
        with progress.Progress(f"at least {least:g} s", 1, "rows", least=least) as shown:
            shown.advance()
    assert re.fullmatch(r"at least 0 s: 1 row in [\d.]+ s\n", capsys.readouterr().err)


def test_the_last_line_has_the_rate_of_what_was_not_done_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_silent", 0)
    with progress.Progress("reading", 12, "bytes", done=4, how="twice") as shown:
        shown.advance(8)
        shown._started -= 4
    assert capsys.readouterr().err == "reading: 12 bytes in 4 s, 2 bytes/s, twice\n"


def test_a_notebook_shows_one_bar_that_is_updated_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for IPython: a handle that records what it shows."""
    shown: list[dict[str, str]] = []
    handle = types.SimpleNamespace(update=lambda bundle, raw: shown.append(bundle))
    display = types.SimpleNamespace(display=lambda bundle, raw, display_id: handle)
    notebook = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object()), display=display)
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_BARS", 0.0)
    stderr = heard(monkeypatch)
    with Progress("reading <it>", total=4, unit="texts") as bar:
        bar.advance(2)
        bar.advance(2)
    assert re.fullmatch(r"reading <it>: 4 texts in [\d.]+ s\n", stderr.getvalue())
    assert [bundle["text/html"].partition("></progress>")[0] for bundle in shown] == [
        '<progress value="0.5000"',
        '<progress value="1.0000"',
        "",
    ]
    assert "reading &lt;it&gt;" in shown[0]["text/html"]


def test_a_notebook_keeps_no_bar_of_work_that_failed_or_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: dict[int, str] = {}

    def display(bundle: dict[str, str], raw: bool, display_id: bool) -> object:
        number = len(shown)
        shown[number] = bundle["text/html"]
        return types.SimpleNamespace(update=lambda bundle, raw: shown.update({number: bundle["text/html"]}))

    kernel = types.SimpleNamespace(kernel=object())
    notebook = types.SimpleNamespace(get_ipython=lambda: kernel, display=types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_BARS", 0.0)
    heard(monkeypatch)
    part = Progress("part", total=2)

    def work() -> None:
        with Progress("all", total=2) as whole, part:
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda _: part.advance(0.5), range(4)))
            whole.advance()
            assert "all: 1 of 2" in shown[0]
            assert "part: 2 of 2" in shown[1]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    part.advance()  # by a thread that is late
    assert shown == {0: "", 1: ""}


def test_a_session_of_ipython_without_a_notebook_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    session = types.SimpleNamespace(get_ipython=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "IPython", session)
    stderr = heard(monkeypatch)
    with Progress("reading", total=1, unit="texts") as bar:
        bar.advance()
    assert re.fullmatch(r"reading: 1 text in [\d.]+ s\n", stderr.getvalue())
