"""Words that a cluster counts give the vocabulary of one process."""

from pathlib import Path

import pytest

from bertsmith.documents import words as file_words
from bertsmith.errors import InputError
from bertsmith.library.vocabulary import learn_vocabulary
from cluster.text_samples import write_texts


def test_the_vocabulary_and_its_report_are_those_of_one_process(here, tmp_path: Path, monkeypatch) -> None:
    texts = write_texts(tmp_path / "texts", large=300)
    for most in (100, 2):  # files with a line of their own in the report
        monkeypatch.setattr(file_words, "MOST_FILES", most)
        one = learn_vocabulary([texts], 80)
        many = learn_vocabulary([texts], 80, engine=here)
        assert many.tokenizer.vocabulary.digest == one.tokenizer.vocabulary.digest
        assert many.report == one.report
        assert many.notes == one.notes
        assert ("further files" in str(one.report)) == (most == 2)


def test_languages_are_counted_as_by_one_process(here, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts" / "en")
    write_texts(tmp_path / "texts" / "de", documents=5)
    one = learn_vocabulary([tmp_path / "texts"], 80, languages=True)
    many = learn_vocabulary([tmp_path / "texts"], 80, languages=True, engine=here)
    assert many.tokenizer.vocabulary.digest == one.tokenizer.vocabulary.digest
    assert (many.report, many.notes) == (one.report, one.notes)


def test_a_file_that_is_not_text_is_named(here, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0\1")
    with pytest.raises(InputError, match=r"expected text in '.*a.txt'; found binary data"):
        learn_vocabulary([tmp_path / "a.txt"], 80, engine=here)
