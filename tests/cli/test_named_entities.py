"""Labels of entities that `predict` is given."""

import json
from pathlib import Path

from tasks.test_named_entities import TEXT, folder

__all__ = ["folder"]  # a fixture


def test_predict_takes_labels_a_threshold_and_what_may_overlap(run, folder: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("film\nplot\n")
    for named in ("film,plot", labels):
        options = ("--labels", named, "--threshold", "0", "--overlap", "none", "--json")
        shown = run("predict", "--model", folder, *options, stdin=f"{TEXT}\n\n".encode()).succeeds()
        answer, empty = map(json.loads, shown.out.splitlines())
        assert {entity["type"] for entity in answer["entities"]} <= {"film", "plot"}
        assert sum(end - start for start, end in (entity["words"] for entity in answer["entities"])) == 7
        assert empty["entities"] == []
    records = tmp_path / "texts.jsonl"
    records.write_text(json.dumps({"text": TEXT}) + "\n")
    shown = run("predict", "--model", folder, "--data", records, "--labels", "film", "--threshold", "0")
    assert "/film" in shown.out, shown.err


def test_what_predict_cannot_do_with_labels_is_refused(run, folder: Path) -> None:
    refused = run("predict", "--model", folder, "--overlap", "some", stdin=b"a")
    assert (refused.code, "overlap" in refused.err) == (1, True)
    refused = run("predict", "--model", folder, "--also", folder, "--labels", "film", stdin=b"a")
    assert "one model and texts on stdin or with --data, for --labels; found --also" in refused.err
