"""Notes on stderr: which lines are written, and how often."""

import io
import sys

import pytest

from bertsmith import progress
from bertsmith.progress import said_once, tell, visible, warn


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


@pytest.mark.parametrize("say", [tell, warn])
def test_control_characters_are_visible_at_a_terminal_only(monkeypatch, say) -> None:
    stderr = heard(monkeypatch)
    say("a\x1b[2J\x9b")
    monkeypatch.setattr(stderr, "isatty", lambda: True)
    say("a\x1b[2J\x9b")
    raw, shown = stderr.getvalue().splitlines()
    assert raw.endswith("a\x1b[2J\x9b")
    assert shown.endswith(r"a\x1b[2J\x9b")
    assert shown == visible(raw)


def test_short_work_has_no_last_line_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_silent", 0)
    for least in (60.0, 0.0):
        with progress.Progress(f"at least {least:g} s", 1, "rows", least=least) as shown:
            shown.advance()
    assert capsys.readouterr().err == "at least 0 s: 1 row in 0 s\n"
