"""`bertsmith.train_translation` and `bertsmith.translate`: settings by name, and the same as the parts they call."""

from pathlib import Path

import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.requests import call
from bertsmith.recipes.translation.decoding import translate
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.request import TrainTranslationRequest
from bertsmith.recipes.translation.settings import SearchSettings

SETTINGS = {"pieces": 40, "steps": 4, "rows_per_step": 8, "device": "cpu", "precision": "fp32"}
TEXTS = ["a b", "", "c c a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, and a run of the public function."""
    folder = tmp_path_factory.mktemp("public")
    lines = [f"{a} {b}\t{b} {a}\n" for a in "abcdef" for b in "abcdef"]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "dev.tsv").write_text("".join(lines[:4]), encoding="utf-8")
    result = bertsmith.train_translation(str(folder / "pairs.tsv"), folder / "run", dev=folder / "dev.tsv", **SETTINGS)
    assert result.steps == 4
    assert "held_out_bleu" in result.scores
    return folder


def test_training_by_name_gives_the_model_of_the_request(folder: Path, tmp_path: Path) -> None:
    request = TrainTranslationRequest(folder / "pairs.tsv", tmp_path / "run", dev=folder / "dev.tsv", **SETTINGS)
    call(bertsmith.train_translation, request)
    files = [folder / "run/model/model.safetensors" for folder in (folder, tmp_path)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_texts_are_translated_as_by_the_search_and_in_their_order(folder: Path) -> None:
    model, tokenizer = read_translation_model(folder / "run")
    translations = {}
    for beam in (1, 3):
        translations[beam] = bertsmith.translate(folder / "run", TEXTS, device="cpu", beam=beam, longer=5)
        assert translations[beam] == translate(model, tokenizer, TEXTS, SearchSettings(beam=beam, longer=5))
        assert [translation.text == "" for translation in translations[beam]][1]
    assert translations[1] != translations[3], "the settings reach the search"
    assert bertsmith.translate(folder / "run", [], device="cpu") == []


def test_a_run_is_not_overwritten_and_resumes_only_with_its_settings(folder: Path) -> None:
    arguments = (folder / "pairs.tsv", folder / "run")
    with pytest.raises(RunError):
        bertsmith.train_translation(*arguments, dev=folder / "dev.tsv", **SETTINGS)
    with pytest.raises(RunError, match="settings that the run"):
        bertsmith.train_translation(*arguments, dev=folder / "dev.tsv", resume=True, **SETTINGS | {"steps": 9})
    assert bertsmith.train_translation(*arguments, dev=folder / "dev.tsv", resume=True, **SETTINGS).steps == 4


def test_what_is_not_a_path_a_text_or_a_setting_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dev as a path; found a value of type int"):
        bertsmith.train_translation(folder / "pairs.tsv", tmp_path / "run", dev=3, steps=1)
    with pytest.raises(ConfigError, match=r"unknown setting 'beams'.*'beam'"):
        bertsmith.translate(folder / "run", TEXTS, beams=3)
    with pytest.raises(ConfigError, match=r"unknown setting 'peices'.*'pieces'"):
        bertsmith.train_translation(folder / "pairs.tsv", tmp_path / "run", peices=3)
    with pytest.raises(InputError, match="text 2"):
        bertsmith.translate(folder / "run", ["a", 2])
    with pytest.raises(InputError, match="tokens in text 2"):
        bertsmith.translate(folder / "run", ["a", "a " * 600], device="cpu")
    assert not (tmp_path / "run").exists()
