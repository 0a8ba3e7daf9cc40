"""The option --engine, addresses as outputs, and what is said when a package for them is missing."""

import importlib.util


def test_without_ray_one_line_says_what_to_install(run, tmp_path, vocabulary, monkeypatch) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\n")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest))
    text, out = tmp_path / "a.txt", tmp_path / "out.npy"
    for command in (
        ("corpus", text, "--vocab", vocabulary, "--out", tmp_path / "corpus"),
        ("vocab", text, "--size", 60, "--out", tmp_path / "vocab2.txt"),
    ):
        answer = run(*command, "--engine", "ray")
        assert answer.code == 1
        assert "expected the package ray for --engine ray; found none; install it: pip install 'bertsmith[ray]'" in (
            answer.err
        )
    assert not out.exists()


def test_resuming_needs_a_cluster(run, tmp_path, vocabulary) -> None:
    (tmp_path / "a.txt").write_text("The boat came home.\n")
    answer = run("corpus", tmp_path / "a.txt", "--vocab", vocabulary, "--out", tmp_path / "corpus", "--resume")
    assert "expected --engine ray with --resume; found local" in answer.err
