"""Grafting words: which ones, where they start from, and that nothing else changes."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from adaptation.domain_samples import write_base
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.adaptation.grafting import FEWEST_USES, grafted, grafted_tokenizer, words_to_add
from bertsmith.text.vocabularies.word_counts import WordCounts
from checkpoints.tiny import write_folder
from tasks.architecture_samples import write_base_model
from tasks.task_samples import TOKENIZER


def test_the_words_that_save_the_most_pieces_are_added_first() -> None:
    counts = WordCounts.of({"the": 900, "films": 30, "plots": 50, "filmss": 20, "ones": FEWEST_USES - 1})
    # "filmss" saves two pieces a use; "the" is a piece, "ones" is rare.
    assert words_to_add(counts, TOKENIZER, 3) == ["plots", "filmss", "films"]
    assert words_to_add(counts, TOKENIZER, 1) == ["plots"]


def test_unknown_words_and_signs_are_added_too() -> None:
    counts = WordCounts.of({"xyz": 10, "films": 8, "123": 50, "^": 9})
    assert words_to_add(counts, TOKENIZER, 9) == ["xyz", "^", "films"], "but no numbers"


def test_a_new_piece_starts_from_the_mean_of_its_old_pieces_and_the_rest_stays(tmp_path: Path) -> None:
    folder = load_any(write_base(tmp_path / "base"))
    result = grafted(folder, ["films", "xyz"])
    index, old = TOKENIZER.vocabulary.index, len(TOKENIZER.vocabulary)
    for name, rows in folder.tensors.items():
        new = result.tensors[name]
        assert torch.equal(new[: len(rows)], rows), name
        if len(rows) != len(new):
            assert torch.allclose(new[old], (rows[index["film"]] + rows[index["##s"]]) / 2)
            assert torch.equal(new[old + 1], rows[TOKENIZER.vocabulary.unk_id])
    changed = {name for name, rows in folder.tensors.items() if len(rows) != len(result.tensors[name])}
    assert changed == {"bert.embeddings.word.weight", "mlm.bias"}
    assert result.tokenizer.tokenize("the films xyz") == ["the", "films", "xyz"]


def test_words_take_the_rows_that_only_fill_up_the_table(tmp_path: Path) -> None:
    folder = load_any(write_base(tmp_path / "base"))
    table, bias = "bert.embeddings.word.weight", "mlm.bias"
    spare = {name: torch.cat([folder.tensors[name], folder.tensors[name][:2] + 9]) for name in (table, bias)}
    config = dataclasses.replace(folder.config, vocab_size=folder.config.vocab_size + 2)
    padded = dataclasses.replace(folder, config=config, tensors=folder.tensors | spare)
    expected, result = grafted(folder, ["films", "xyz"]), grafted(padded, ["films", "xyz"])
    assert result.config == expected.config
    assert all(torch.equal(rows, result.tensors[name]) for name, rows in expected.tensors.items())


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_a_grafted_model_is_saved_and_predicts_old_pieces_as_before(architecture: str, tmp_path: Path) -> None:
    folder = load_any(write_base_model(tmp_path / "base", architecture))
    before = folder.require_tokenizer()
    result = grafted(folder, ["qqqq", "zzzz"])
    write_folder(tmp_path / "new", result)
    again = load_any(tmp_path / "new")
    assert again.require_tokenizer().vocabulary == result.require_tokenizer().vocabulary
    ids = before.encode("the film was [MASK] .", special_tokens=True)
    assert np.array_equal(ids, again.require_tokenizer().encode("the film was [MASK] .", special_tokens=True))
    batch = Batch.from_rows([ids])
    logits = [
        load_pretrained(model).model.eval()(batch, masked=torch.arange(len(ids))).mlm_logits
        for model in (folder, again)
    ]
    assert torch.allclose(logits[0], logits[1][:, : logits[0].shape[1]], atol=1e-6)
    assert logits[1].shape[1] == logits[0].shape[1] + 2


def test_no_id_changes() -> None:
    tokenizer = grafted_tokenizer(TOKENIZER, ["films"])
    assert tokenizer.vocabulary.pieces[: len(TOKENIZER.vocabulary)] == TOKENIZER.vocabulary.pieces
    assert tokenizer.vocabulary.special == TOKENIZER.vocabulary.special
