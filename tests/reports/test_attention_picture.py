"""The picture of the forms of attention: weights of each, and the committed file."""

from pathlib import Path

import attention_picture
import numpy as np

from bertsmith.inference.vectors.pictures import write_picture

PAGE = Path(__file__).parent.parent.parent / "docs" / "attention.md"


def test_every_form_has_weights_for_the_words_of_the_sentence(tmp_path: Path) -> None:
    forms = attention_picture.forms(steps=2)
    titles = [form.title.split(",")[0] for form in forms]
    assert titles == ["dot", "general", "concat", "scaled dot", "self-attention"]
    words = attention_picture.SENTENCE.split()
    for form in forms:
        assert form.weights.shape == (len(form.rows), len(form.columns))
        assert (form.weights.sum(axis=1) <= 1 + 1e-5).all()
        assert (form.weights >= 0).all()
    assert all(sorted(form.columns) == sorted(words) for form in forms[:4])
    assert forms[0].rows == words[::-1]
    np.testing.assert_allclose(forms[3].weights.sum(axis=1), 1, rtol=1e-5)
    write_picture(tmp_path / "picture.svg", attention_picture.picture(forms), "Forms of attention")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_the_page_shows_the_committed_picture() -> None:
    assert attention_picture.PICTURE.is_file()
    assert f"]({attention_picture.PICTURE.name})" in PAGE.read_text(encoding="utf-8")
