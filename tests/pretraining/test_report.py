"""The report is one self-contained page that shows the contents of the log."""

import re
from pathlib import Path

import pytest

from bertsmith.base.core.errors import RunError
from bertsmith.base.pages.charts import COLORS, Series, line_chart, thinned
from bertsmith.base.pages.html import page_place
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.pretraining.report import Samples, write_report
from reports.page import Page
from training.toy import ToyWorkload, toy_run

pytestmark = pytest.mark.usefixtures("drawn_charts")


@pytest.fixture
def run(tmp_path):
    toy_run(tmp_path / "run", ToyWorkload(), steps=12)
    return tmp_path / "run"


def test_a_report_shows_curves_tables_and_samples(run):
    samples = [Samples(title="Filled masks", header=("text", "first"), rows=[("The [MASK]", "man")])]
    path = write_report(run, title="A toy", samples=samples)
    assert path == run / "report.html"
    page = Page(path.read_text(encoding="utf-8"))
    assert page.elements.count("svg") == 4  # loss, learning rate, tokens per second, gradient norm
    for text in (
        "A toy",
        "12 steps",
        "unigram entropy",
        "held-out",
        "train.weight_decay",
        "processor",
        "[MASK]",
        "man",
    ):
        assert text in page.text


def test_a_report_makes_no_network_requests(run):
    text = write_report(run).read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "image"} & set(page.elements)
    outside = [pair for pair in page.attributes if "//" in pair[1] and not pair[0].startswith("xmlns")]
    assert outside == []
    assert "url(http" not in text
    assert "@import" not in text


def test_a_report_follows_light_and_dark(run):
    text = write_report(run).read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert "#010203" not in text


def test_what_users_write_is_escaped(tmp_path):
    name = "a<b>&$x$"
    toy_run(tmp_path / name, ToyWorkload(), steps=3)
    toy_run(tmp_path / "_hidden", ToyWorkload(), steps=3)
    out = tmp_path / "both.html"
    samples = [Samples(title="<i>", header=["<u>"], rows=[["<script>alert(1)</script>"]])]
    assert write_report([tmp_path / name, tmp_path / "_hidden"], out=out, title="<t>", samples=samples) == out
    page = Page(out.read_text(encoding="utf-8"))
    assert not {"a", "u", "t", "script"} & set(page.elements)
    for text in ("<t>", "<i>", "<u>", "<script>alert(1)</script>", f"{name}, training", "_hidden, training"):
        assert text in page.text


def test_runs_with_the_same_name_are_distinguished_by_their_paths(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    for path in paths:
        toy_run(path, ToyWorkload(), steps=2)
    text = Page(write_report(paths, out=tmp_path / "out.html").read_text(encoding="utf-8")).text
    assert all(f"{path}, training" in text for path in paths)


def test_a_run_of_one_step_has_a_report(tmp_path):
    toy_run(tmp_path, ToyWorkload(), steps=1)
    assert "1 step ·" in write_report(tmp_path).read_text(encoding="utf-8")


def test_a_run_without_a_log_is_refused(tmp_path):
    RunFolder.create(tmp_path / "run", {})
    with pytest.raises(RunError, match="found no line of it; train first"):
        write_report(tmp_path / "run")
    with pytest.raises(RunError, match="a run in"):
        write_report(tmp_path / "nothing")


def test_equal_series_give_equal_charts_and_gaps_are_kept():
    series = [Series(x=[1, 2, 3, 4], y=[1.0, float("nan"), 2.0, 3.0], color=COLORS[0])]
    chart = line_chart(series, x_label="steps", y_label="loss")
    assert chart == line_chart(series, x_label="steps", y_label="loss")
    assert re.match(r"<svg [^>]*viewBox", chart)
    assert "nan" not in chart


def test_intervals_are_vertical_lines_at_their_points_and_a_point_may_have_none():
    def chart(*intervals):
        points = Series(x=[1, 2], y=[0.5, 0.7], color=COLORS[0], style="points", intervals=intervals)
        return line_chart([points], x_label="labels", y_label="accuracy")

    assert chart(None, None) == chart()
    drawn = [
        chart(*intervals).count('<g id="LineCollection_')
        for intervals in ((), (None, [0.6, 0.8]), ([0.4, 0.6], [0.6, 0.8]))
    ]
    assert drawn == [0, 1, 1]
    (single, both) = (chart(None, [0.6, 0.8]), chart([0.6, 0.6], [0.6, 0.8]))
    assert both.count("<path") == single.count("<path") + 1


def test_a_long_line_is_thinned_to_what_a_screen_can_show():
    x, y = thinned(list(range(100_000)), [1.0] * 100_000)
    assert len(x) == len(y) == 800
    assert set(y) == {1.0}


def test_the_page_of_several_runs_is_named_after_them_and_is_in_none_of_them():
    assert page_place([Path("a") / "run"]) == Path("a/run/report.html")
    assert page_place([Path("a/run"), Path("b/run"), Path("b/2 c")]) == Path("report-a-run-b-run-b-2-c.html")
    assert page_place([Path("a/run"), Path("../b/run")]) == Path("report-a-run-b-run.html")
    assert page_place([Path("x" * 90), Path("y" * 90), Path("z")]) == Path(f"report-{'x' * 90}-and-2-more.html")
