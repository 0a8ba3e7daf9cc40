"""The loss of masked words: against a slow version, and comparable between vocabularies."""

import math

import pytest
import torch

from adaptation.domain_samples import words
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.parts.batch import Batch
from bertsmith.recipes.adaptation.grafting import grafted_tokenizer
from bertsmith.recipes.adaptation.masked_words import Passage, WordLoss, passages_of, word_loss
from tasks.task_samples import CONFIG, TOKENIZER

CPU = choose("cpu", "fp32")
PASSAGES = [
    Passage(tuple("the filmss was a plot".split()), (1, 3)),
    Passage(tuple("it was in the plots and the films .".split()), (4, 7)),
]


def test_a_word_is_read_from_left_to_right() -> None:
    model = untrained(CONFIG, 3).eval()
    result = word_loss(model, TOKENIZER, PASSAGES, CPU)
    for passage, nats in zip(PASSAGES, result.nats, strict=True):
        assert nats == pytest.approx(_slow(model, passage), rel=1e-5)
    assert result.words == (2, 2)
    assert result.characters == len("filmssa" + "plotsfilms")
    assert result.per_word == pytest.approx(sum(result.nats) / 4)


def _slow(model: torch.nn.Module, passage: Passage) -> float:
    """The negative log-probability of the masked words of a passage, one row for each number of shown pieces."""
    vocabulary = TOKENIZER.vocabulary
    pieces = [TOKENIZER.encode(word).tolist() for word in passage.words]
    total = 0.0
    for shown in range(max(len(pieces[index]) for index in passage.masked)):
        row, targets = [vocabulary.cls_id], []
        for index, ids in enumerate(pieces):
            if index in passage.masked:
                if shown < len(ids):
                    targets.append((len(row) + shown, ids[shown]))
                ids = ids[:shown] + [vocabulary.mask_id] * (len(ids) - shown)
            row += ids
        row.append(vocabulary.sep_id)
        ids = torch.tensor(row).numpy()
        output = model(Batch.from_rows([ids]), masked=torch.tensor([index for index, _ in targets]))
        logs = output.mlm_logits.detach().log_softmax(dim=1)
        total -= sum(float(logs[n, gold]) for n, (_, gold) in enumerate(targets))
    return total


def test_the_loss_of_a_uniform_model_is_that_of_its_pieces() -> None:
    model = untrained(CONFIG, 3)
    with torch.no_grad():
        for parameter in model.mlm.parameters():
            parameter.zero_()
    # filmss: three pieces, a: one, plots and films: two each.
    assert sum(word_loss(model, TOKENIZER, PASSAGES, CPU).nats) == pytest.approx(
        8 * math.log(len(TOKENIZER.vocabulary)), rel=1e-6
    )


def test_the_passages_and_their_masked_words_are_the_same_for_every_vocabulary() -> None:
    other = grafted_tokenizer(TOKENIZER, ["films"])
    documents = [[words(40, n, ["the", "films", "was", "xyz"]), "it was ."] for n in range(5)]
    result = passages_of(documents, [TOKENIZER, other], room=12, seed=1)
    assert result == passages_of(documents, [other, TOKENIZER], room=12, seed=1)
    assert result != passages_of(documents, [TOKENIZER, other], room=12, seed=2)
    for passage in result:
        assert len(TOKENIZER.encode_repeated_words(passage.words).ids) <= 12
        assert {passage.words[index] for index in passage.masked} <= {"the", "films", "was", "it"}, "known words only"
    joined = [word for passage in result for word in passage.words]
    assert joined == [word for document in documents for sentence in document for word in sentence.split()]


def test_the_change_is_that_of_the_means_of_the_passages() -> None:
    before, after = (WordLoss(nats=nats, words=(2, 4), characters=20) for nats in ((4.0, 8.0), (2.0, 8.0)))
    change = after.change_from(before)
    assert change.difference == pytest.approx(-0.5)
    assert (
        WordLoss(nats=(1.0,), words=(1,), characters=3).change_from(WordLoss(nats=(2.0,), words=(1,), characters=3))
        is None
    )
