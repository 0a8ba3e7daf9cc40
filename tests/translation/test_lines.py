"""Lines through a translation model."""

import pytest

from bertsmith.app.library import translation
from bertsmith.recipes.translation.decoding import Translation
from bertsmith.recipes.translation.request import TranslateRequest


@pytest.mark.parametrize(("read", "empty"), [(["hello", "", "  "], 0), (["hello", "☃", "☂ ☃"], 2)])
def test_lines_with_text_whose_translation_is_empty_are_counted(monkeypatch, capsys, read, empty):
    class Loaded:
        def to(self, device):
            return self

    def translate(loaded, tokenizer, texts, settings, names):
        return [Translation(text="hallo" if text == "hello" else "", score=0.0, has_ended=True) for text in texts]

    monkeypatch.setattr(translation, "read_translation_model", lambda model: (Loaded(), None))
    monkeypatch.setattr(translation, "search_translations", translate)
    lines = list(translation.translated_lines(TranslateRequest("model", device="cpu"), [read]))
    assert [line.text for line in lines] == ["hallo", "", ""]
    said = capsys.readouterr().err
    assert ("with text got an empty translation" in said) == (empty > 0)
    assert not empty or f"warning: {empty} lines with text" in said
