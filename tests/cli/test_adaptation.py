"""The command `adapt`: the forecast, the table, the errors."""

import json

import pytest

from adaptation.domain_samples import write_base, write_domain, write_general

pytestmark = pytest.mark.usefixtures("drawn_charts")


def test_check_says_whether_the_text_is_enough_and_writes_nothing(run, tmp_path):
    base, domain = write_base(tmp_path / "base"), write_domain(tmp_path / "domain.txt")
    result = run("adapt", base, domain, "--check", "--max-length", 32, "--minutes", 3).succeeds()
    lines = result.out.splitlines()
    assert lines[0] == "text: 60 documents, 2640 words"
    assert lines[1].startswith("vocabulary on held-out text: 1.")
    assert "; 3 minutes read it " in lines[2]
    report = json.loads(run("adapt", base, domain, "--check", "--json", "--max-length", 32).out)
    assert (report["documents"], report["words"]) == (60, 2640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "domain.txt"]


def test_a_model_is_adapted_and_the_table_comes_first(run, tmp_path):
    base, domain, general = (
        write(tmp_path / name)
        for write, name in ((write_base, "base"), (write_domain, "domain.txt"), (write_general, "general.txt"))
    )
    options = ["--vocabulary", "graft", "--steps", 2, "--max-length", 32, "--score-words", 200, "--general", general]
    out = tmp_path / "run"
    result = run("adapt", base, domain, *options, "--out", out).succeeds()
    lines = result.out.splitlines()
    assert lines[0].split() == ["before", "after", "change"]
    assert lines[1].startswith("pieces per word")
    assert any(line.startswith("2 words added, pre-training continued for 2 steps") for line in lines)
    assert any(line.startswith("added words: ") and "films" in line for line in lines)
    assert lines[-2:] == [f"model: {out / 'model'}", f"report: {out / 'report.html'}"]
    assert run("adapt", base, domain, *options, "--out", out, "--resume").out == result.out
    run("adapt", base, domain, *options, "--out", out).refuses()


def test_errors_are_one_line(run, tmp_path):
    base = write_base(tmp_path / "base")
    (tmp_path / "short.txt").write_text("the film was it .\n")
    for arguments, match in (
        ((base, tmp_path / "short.txt", "--check"), "at least 2,000 words; found 5 words"),
        ((base, tmp_path / "short.txt"), "expected --out RUN, or --check"),
        ((base, tmp_path / "short.txt", "--check", "--task", "spam"), "without options of a run; found --task"),
    ):
        result = run("adapt", *arguments)
        assert (result.code, result.out) == (1, "")
        assert match in result.err.splitlines()[-1]
