"""Words that a cluster counts give the vocabulary of one process."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.cli.app import main
from bertsmith.app.library.vocabulary import LearnedVocabulary, _learned, learn_vocabulary
from bertsmith.base.core.errors import InputError, RunError
from bertsmith.inference.cluster import words
from bertsmith.inference.cluster.kept import Kept
from bertsmith.text.documents import words as file_words
from bertsmith.text.documents.request import VocabularyRequest
from cluster.conftest import stream_here
from cluster.text_samples import write_texts


def test_the_vocabulary_and_its_report_are_those_of_one_process(here, tmp_path: Path, monkeypatch) -> None:
    texts = write_texts(tmp_path / "texts", large=300)
    for most in (100, 2):  # files with a line of their own in the report
        monkeypatch.setattr(file_words, "MOST_FILES", most)
        alone = learn_vocabulary([texts], 80)
        many = learn_vocabulary([texts], 80, engine=here)
        assert many.tokenizer.vocabulary.digest == alone.tokenizer.vocabulary.digest
        assert many.report == alone.report
        assert many.notes == alone.notes
        assert ("further files" in str(alone.report)) == (most == 2)


def test_languages_are_counted_as_by_one_process(here, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts" / "en")
    write_texts(tmp_path / "texts" / "de", documents=5)
    alone = learn_vocabulary([tmp_path / "texts"], 80, languages=True)
    many = learn_vocabulary([tmp_path / "texts"], 80, languages=True, engine=here)
    assert many.tokenizer.vocabulary.digest == alone.tokenizer.vocabulary.digest
    assert (many.report, many.notes) == (alone.report, alone.notes)


def test_a_file_that_is_not_text_is_named(here, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0\1")
    with pytest.raises(InputError, match=r"expected text in '.*a.txt'; found binary data"):
        learn_vocabulary([tmp_path / "a.txt"], 80, engine=here)


@pytest.mark.parametrize("languages", [False, True])
def test_a_count_that_was_stopped_counts_only_the_files_that_are_left(
    here, tmp_path: Path, monkeypatch, languages: bool
) -> None:
    texts = write_texts(tmp_path / "texts" / "en", large=300).parent
    write_texts(tmp_path / "texts" / "de", documents=5)
    alone = learn_vocabulary([texts], 80, languages=languages)
    path, counted = tmp_path / "vocab.txt.partial", []

    def learned(stop: int, **options: bool) -> LearnedVocabulary:
        def stream(engine: str, parts: list[Any], stage: Any) -> Iterator[Any]:
            for part, table in zip(parts, stream_here(engine, parts, stage), strict=True):
                if len(counted) == stop:
                    raise KeyboardInterrupt
                counted.append(part["part"])
                yield table

        monkeypatch.setattr(words, "stream", stream)
        kept = Kept(path, "vocabulary", **{"replace": False, "resume": False, **options})
        return _learned(VocabularyRequest([texts], 80, languages=languages, engine=here), kept)

    with pytest.raises(KeyboardInterrupt):
        learned(3)
    with pytest.raises(RunError, match=r"no unfinished vocabulary in '.*'; found one; resume with --resume"):
        learned(9)
    many = learned(99, resume=True)
    assert many.tokenizer.vocabulary.digest == alone.tokenizer.vocabulary.digest
    assert (many.report, many.notes) == (alone.report, alone.notes)
    assert len(counted) == len(set(counted)) > 3, "each file once"
    kept = Kept(path, "vocabulary", replace=False, resume=True)
    with pytest.raises(
        RunError, match=r"the rules that the unfinished vocabulary in .* was started with; found others"
    ):
        _learned(VocabularyRequest([texts], 80, cased=True, languages=languages, engine=here), kept)


def test_the_command_resumes_and_leaves_nothing_behind(here, tmp_path: Path, monkeypatch, capsys) -> None:
    def run(command: list[str]) -> object:
        monkeypatch.setattr("sys.argv", ["bertsmith", *command])
        try:
            main()
        except SystemExit as ended:
            return ended.code or 0
        return 0

    texts = write_texts(tmp_path / "texts")
    out = tmp_path / "vocab.txt"

    def stopping(engine: str, parts: list[Any], stage: Any) -> Iterator[Any]:
        yield from itertools.islice(stream_here(engine, parts, stage), 2)
        raise KeyboardInterrupt

    command = ["vocab", str(texts), "--size", "80", "--out", str(out), "--engine", "ray"]
    with monkeypatch.context() as stopped:
        stopped.setattr(words, "stream", stopping)
        assert run(command) != 0
    assert (tmp_path / "vocab.txt.partial").is_dir()
    assert run(command) == 1
    assert "resume with --resume, or use --replace" in capsys.readouterr().err
    assert run([*command, "--resume"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts", "vocab.txt"]
    assert run(["vocab", str(texts), "--size", "80", "--out", str(out), "--replace", "--resume"]) == 1
    assert "--resume needs --engine ray; add it" in capsys.readouterr().err
