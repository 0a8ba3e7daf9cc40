"""The curve of the demo: one line per evaluation on stderr, and a page that reloads itself."""

import pytest

from bertsmith.app.demo.result import RELOAD_SECONDS, WIDTH, LiveCurve, bar
from bertsmith.base.core import progress
from bertsmith.base.core.progress import quiet
from reports.page import Page

pytestmark = pytest.mark.usefixtures("drawn_charts")


@pytest.fixture(autouse=True)
def _progress_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_silent", 0)


def values(loss: float) -> dict[str, float]:
    return {"held_out_mlm_loss": loss, "held_out_unigram_entropy": 6.56}


def test_each_evaluation_is_a_line_with_the_mark_in_one_column_and_the_page_shows_them(tmp_path, capsys):
    curve = LiveCurve(tmp_path / "report.html", "A <demo>")
    curve.on_evaluation(0, values(9.0))
    curve.on_evaluation(1200, values(5.31))
    explained, first, second = capsys.readouterr().err.splitlines()
    assert "| marks" in explained
    assert second.startswith("  step   1,200 |  5.31 nats | ####")
    assert second.endswith(" | frequencies alone 6.56")
    bars = [line.split(" | ")[2] for line in (first, second)]
    assert [len(bar) for bar in bars] == [WIDTH, WIDTH]
    assert bars[0].index("|") == bars[1].index("|")
    assert bars[0].count("#") > bars[1].index("|") > bars[1].rindex("#")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert first in page.text
    assert second in page.text
    assert ("content", str(RELOAD_SECONDS)) in page.attributes


def test_the_curve_is_silent_where_progress_is_and_still_writes_its_page(tmp_path, capsys):
    with quiet():
        LiveCurve(tmp_path / "report.html", "demo").on_evaluation(0, values(9.0))
    assert capsys.readouterr().err == ""
    assert "9.00 nats" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("loss", [0.0, 6.0, 20.0, float("nan"), float("inf")])
def test_a_bar_has_its_width_and_mark_whatever_the_loss(loss):
    drawn = bar(loss, 6.0, 9.0)
    assert len(drawn) == WIDTH
    assert drawn.count("|") == 1
