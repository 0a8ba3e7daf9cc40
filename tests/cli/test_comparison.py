"""The command `compare`: what it prints, and that its help knows every system."""

import pytest

from bertsmith.recipes.comparison.request import SYSTEM_NAMES
from bertsmith.recipes.comparison.systems import SYSTEMS
from comparison.ladder_samples import write_labelled

pytestmark = pytest.mark.usefixtures("drawn_charts")


def test_the_table_comes_first_and_then_which_step_was_worth_it(run, tmp_path):
    task, dev = write_labelled(tmp_path / "t.tsv", 40), write_labelled(tmp_path / "d.tsv", 30, seed=1)
    out = tmp_path / "report"
    options = ["--task", task, "--dev", dev, "--systems", "one-hot, tf-idf", "--labels", "10,all", "--out", out]
    result = run("compare", *options, "--seeds", 2).succeeds()
    lines = result.out.splitlines()
    assert lines[0] == "classification, scored on 30 dev examples; 2 seeds"
    assert lines[1].startswith("labels  system   accuracy")
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["10", "one-hot"], ["10", "tf-idf"], ["40", "one-hot"], ["40", "tf-idf"]
    ]  # fmt: skip
    assert lines[6].startswith("With 40 labels, ")
    assert lines[7].startswith("With 10 labels, ")
    assert lines[-1] == f"report: {out / 'report.html'}"
    run("compare", *options).refuses("--resume")
    assert run("compare", "--task", task, "--dev", dev, "--out", out, "--resume").out == result.out


def test_a_task_with_its_own_examples_needs_no_file(run, tmp_path):
    result = run("compare", "--task", "spam", "--systems", "tf-idf", "--seeds", 1, "--out", tmp_path / "report")
    assert result.code == 0, result.err
    assert result.out.startswith("spam, scored on ")


def test_the_file_and_its_task_may_be_named_as_in_finetune(run, tmp_path):
    task, dev = write_labelled(tmp_path / "t.tsv", 40), write_labelled(tmp_path / "d.tsv", 30, seed=1)
    options = ["--dev", dev, "--systems", "one-hot", "--seeds", 1, "--out"]
    named = run("compare", "--task", "classification", "--train", task, *options, tmp_path / "named").succeeds()
    plain = run("compare", "--task", task, "--kind", "classification", *options, tmp_path / "plain")
    assert [line.split()[:3] for line in named.out.splitlines()[:3]] == [
        line.split()[:3] for line in plain.out.splitlines()[:3]
    ]
    both = run("compare", "--task", "spam", "--kind", "spam", "--train", task, *options, tmp_path / "both")
    both.refuses("leave --kind out")


def test_the_help_names_every_system(run):
    assert tuple(SYSTEMS) == SYSTEM_NAMES
    shown = " ".join(run("compare", "--help-all").out.split()).replace("- ", "-")  # a line may end inside a name
    for name in SYSTEMS:
        assert name in shown, f"{name} is missing from the help of --systems"


def test_a_wrong_system_is_one_line(run, tmp_path):
    result = run("compare", "--task", "spam", "--systems", "tfidf", "--out", tmp_path / "report")
    result.refuses("did you mean 'tf-idf'?")
