"""What is suspicious about the examples of a run is in its report, its page and the last lines of the command."""

import contextlib
import io
from pathlib import Path

import pytest

from bertsmith.app.library.finetuning import finetune
from bertsmith.base.core.progress import quiet, recorded_warnings, warn
from bertsmith.base.core.requests import all_fields, with_parameters
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.finetuning.run import summary_lines
from bertsmith.recipes.results.finished_run import warning_lines
from bertsmith.recipes.results.report import write_finetuning_report
from tasks.task_samples import write_base_model

OPTIONS = {"epochs": 0.1, "seeds": 1, "baselines": False, "device": "cpu", "precision": "fp32", "max_length": 8}


def test_warnings_about_the_data_are_in_report_page_and_summary(tmp_path: Path) -> None:
    rows = [f"a film was {word},{label}" for word, label in [("good", "pos"), ("bad", "neg")] * 10]
    rows += [",pos", "the plot of it and one great film in the end,pos", "plot,rare"]
    (tmp_path / "mails.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        result = finetune(
            write_base_model(tmp_path / "base"),
            "classification",
            tmp_path / "run",
            train=tmp_path / "mails.csv",
            recipe="2018",
            **OPTIONS,
        )
    warnings = result.report["warnings"]
    assert any("line 22" in line and "empty text" in line for line in warnings)
    assert any("rare" in line for line in warnings)
    assert warnings[-1].startswith("train: 1 of ")
    assert warnings[-1].endswith("in all")
    fields = [field for _, field in all_fields(FinetuneRequest)]
    in_python = [with_parameters(line, fields) for line in warnings[:-1]]  # the last one is not a warning
    assert all(line in " ".join(said.getvalue().split()) for line in in_python)
    lines = summary_lines(result.report)
    assert lines[-1] == f"{len(warnings)} warnings about the data, see the report"
    page = write_finetuning_report([tmp_path / "run"]).read_text()
    assert "Warnings about the data" in page
    assert "empty text" in page


def test_warnings_are_counted_at_the_end() -> None:
    assert warning_lines({"warnings": ["line 1"]}) == ["1 warning about the data, see the report"]
    assert warning_lines({}) == []


def test_warnings_are_recorded_although_another_process_gives_them(capsys: pytest.CaptureFixture[str]) -> None:
    with recorded_warnings() as outer:
        with recorded_warnings() as inner, quiet(warnings=True):
            warn("a  text\nof two lines")
        warn("more")
    assert (inner, outer) == (["a text of two lines"], ["a text of two lines", "more"])
    assert capsys.readouterr().err == "warning: more\n"
