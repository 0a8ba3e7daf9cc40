"""Two language models side by side: each predicts what the other has read, and the whole is trained, kept and used."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import Runtime
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.elmo import ElmoConfig, ElmoModel
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.heads.sampled_softmax import PieceSampler, sampled_logits
from bertsmith.models.parts.batch import Batch
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.workload import Pretraining
from corpus.samples import write_corpus
from oracles.pretraining_oracle import MemoryDocuments
from training.interruptions import assert_same_files, killed_at_evaluation
from training.whole_steps import assert_same_gradients, assert_same_step, whole_step

WORDS = "hang out camera the a man took we they stick to let is never and with . ##s".split()
VOCABULARY = Vocabulary([*SPECIAL_PIECES, *WORDS])
LAST = len(VOCABULARY)
EXACT = Runtime(device="cpu", precision="fp64")


def documents(count: int = 10, seed: int = 0, *, reverse: bool = False) -> MemoryDocuments:
    """Each sentence fills a row, so that text read backward has the same rows."""
    rng = np.random.default_rng(seed)
    result = [[rng.integers(5, LAST, size=rng.integers(4, 15)).tolist()] for _ in range(count)]
    return MemoryDocuments([[sentence[::-1] for sentence in document] for document in result] if reverse else result)


def model(*, dropout: float = 0.0) -> EncoderForPreTraining:
    config = ElmoConfig(
        vocab_size=LAST, hidden_size=8, intermediate_size=6, num_filters=64, hidden_dropout_prob=dropout
    )
    built = EncoderForPreTraining(ElmoModel(config, seed=None), seed=1).double()
    built.encoder.read_vocabulary(VOCABULARY)
    return built


def task(network: EncoderForPreTraining, texts: MemoryDocuments, **changes: int) -> Pretraining:
    data = PretrainingDataSettings(objective="forward+backward", max_length=24, seed=3)
    return Pretraining(
        network, texts, texts, VOCABULARY, data, EXACT, PretrainingRunSettings(size="tiny", rows_per_step=8, **changes)
    )


def test_the_loss_is_the_sum_of_both_directions_row_by_row():
    network = model()
    total, sums, _ = whole_step(task(network, documents()), 0)
    (batch,) = task(network, documents()).plan(0, 0, 1).micro_batches
    table = network.mlm.weight.detach()
    nll, count, starts = {"forward": 0.0, "backward": 0.0}, 0, np.cumsum([0, *batch.batch.lengths])
    for start, length in zip(starts, batch.batch.lengths, strict=False):
        ids = batch.batch.token_ids[start : start + length].numpy()
        with torch.no_grad():
            hidden = network.encoder(Batch.from_flat(ids, 0 * ids, [length]))
        for position in range(length - 1):
            right = (hidden[position, :4] @ table.T + network.mlm.bias.detach()).log_softmax(0)
            left = (hidden[position + 1, 4:] @ table.T + network.mlm.bias.detach()).log_softmax(0)
            nll["forward"] -= float(right[ids[position + 1]])
            nll["backward"] -= float(left[ids[position]])
            count += 1
    assert sums["forward_count"] == sums["backward_count"] == count
    assert sums["forward_nll"] == pytest.approx(nll["forward"])
    assert sums["backward_nll"] == pytest.approx(nll["backward"])
    assert total == pytest.approx((nll["forward"] + nll["backward"]) / count, rel=1e-6)


def test_reversed_text_swaps_the_directions():
    """The backward model on a text is the forward model on the reversed text."""
    straight, swapped = model(), model()
    state = straight.state_dict()
    other = {"forward_lstm": "backward_lstm", "backward_lstm": "forward_lstm"}
    swapped.load_state_dict(
        {".".join(other.get(part, part) for part in name.split(".")): tensor for name, tensor in state.items()}
    )
    # [CLS] and [SEP] also change places.
    ends = Vocabulary([{"[CLS]": "[SEP]", "[SEP]": "[CLS]"}.get(piece, piece) for piece in VOCABULARY.pieces])
    table = swapped.mlm.weight.data
    table[[2, 3]] = table[[3, 2]]
    swapped.encoder.read_vocabulary(ends)
    _, sums, _ = whole_step(task(straight, documents()), 0)
    _, mirrored, _ = whole_step(task(swapped, documents(reverse=True)), 0)
    assert mirrored["forward_nll"] != pytest.approx(sums["forward_nll"], abs=1e-4)
    assert mirrored["forward_nll"] == pytest.approx(sums["backward_nll"])
    assert mirrored["backward_nll"] == pytest.approx(sums["forward_nll"])


def test_the_gradient_of_a_step_is_the_same_however_it_is_split():
    whole = whole_step(task(model(dropout=0.2), documents()), 2)
    for micro_tokens in (40, 1):
        cut = whole_step(task(model(dropout=0.2), documents(), micro_tokens=micro_tokens), 2)
        assert_same_step(cut, whole)


def test_figures_name_both_directions():
    sums = {"forward_nll": 2.0, "forward_correct": 1, "forward_count": 2}
    sums |= {"backward_nll": 4.0, "backward_correct": 0, "backward_count": 2}
    objective = OBJECTIVES["forward+backward"]
    figures = objective.figures(sums)
    assert figures["loss"] == 3.0
    assert objective.perplexities(figures) == pytest.approx(
        {"forward_perplexity": np.exp(1.0), "backward_perplexity": np.exp(2.0)}
    )
    assert objective.trained_parts == ("mlm",)


def test_a_sample_lowers_logits_by_the_chance_to_be_compared():
    """Against a loop over the targets; a target that is also in the sample counts once."""
    counts = np.arange(LAST)
    sample = PieceSampler(counts, 12, 5, torch.device("cpu")).of_step(3)
    shares = (counts + 1) / (counts + 1).sum()
    head, hidden = model().mlm, torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([int(sample.pieces[0]), 5, 6, int(sample.pieces[-1]), 7, 5])
    with torch.no_grad():
        result = sampled_logits(hidden, head.weight, head.bias, targets, sample)
        full = hidden @ head.weight.T + head.bias
    for row, target in enumerate(targets.tolist()):
        rest = [piece for piece in sample.pieces.tolist() if piece != target]
        expected = [full[row, piece] - np.log(1 - (1 - shares[piece]) ** 12) for piece in [target, *rest]]
        kept = result[row][torch.isfinite(result[row])]
        np.testing.assert_allclose(kept.numpy(), [float(value) for value in expected], atol=1e-6)


def test_samples_hold_pieces_as_often_as_their_chance_says():
    counts = np.array([0, 0, 50, 200, 1000])
    sampler = PieceSampler(counts, 3, 1, torch.device("cpu"))
    drawn = np.zeros(5)
    for step in range(4000):
        drawn[sampler.of_step(step).pieces.numpy()] += 1
    chances = np.exp(sampler.of_step(0).log_chances.numpy())
    np.testing.assert_allclose(drawn / 4000, chances, atol=0.03)
    assert torch.equal(sampler.of_step(7).pieces, sampler.of_step(7).pieces)


def test_a_sample_of_everything_gives_the_loss_of_the_whole_vocabulary():
    """With that many draws every piece is compared with, and no logit is lowered."""
    whole = whole_step(task(model(), documents()), 0)
    sampled = whole_step(task(model(), documents(), sampled_pieces=5000), 0)
    assert sampled[0] == pytest.approx(whole[0], rel=1e-6)
    assert_same_gradients(sampled[2], whole[2], atol=1e-6, rtol=1e-4)


def test_a_sampled_step_is_the_same_however_it_is_split():
    whole = whole_step(task(model(), documents(), sampled_pieces=6), 1)
    cut = whole_step(task(model(), documents(), sampled_pieces=6, micro_tokens=30), 1)
    assert cut[0] == pytest.approx(whole[0], abs=1e-12)
    assert whole[0] != pytest.approx(whole_step(task(model(), documents()), 1)[0], abs=1e-3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two directions")
    rng = np.random.default_rng(0)
    phrases = ["let us hang out .", "they hang out with a man .", "we never took the camera .", "the camera is out ."]
    lines = ["\n".join(rng.choice(phrases, rng.integers(2, 6))) for _ in range(60)]
    return write_corpus(folder, lines, WordPieceTokenizer(VOCABULARY))


def run(corpus: Path, out: Path, *, resume: bool = False, **options: object):
    settings = {"architecture": "elmo", "size": "tiny", "rows_per_step": 8, "max_length": 24, "precision": "fp32"}
    return pretrain(corpus, out, *settings_from_recipe({**settings, "device": "cpu", **options}), resume=resume)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    result = run(corpus, out, steps=40)
    assert result.scores["held_out_forward_perplexity"] < 6
    assert result.scores["held_out_backward_perplexity"] < 6
    return out


def test_after_hang_comes_out_rather_than_camera(trained):
    """Both ways: before "out" comes "hang" rather than "camera"."""
    loaded = load_pretrained(load_any(trained)).model.eval()
    out, camera, hang, us = (VOCABULARY.index[word] for word in ("out", "camera", "hang", "let"))
    ids = np.array([VOCABULARY.cls_id, us, hang])
    after = loaded(Batch.from_flat(ids, 0 * ids, [3]), masked=torch.tensor([2])).mlm_logits[0]
    assert after[out] > after[camera]
    ids = np.array([out, VOCABULARY.index["with"], VOCABULARY.index["a"]])
    before = loaded(Batch.from_flat(ids, 0 * ids, [3]), backward=torch.tensor([0])).backward_logits[0]
    assert before[hang] > before[camera]


def test_a_saved_model_has_the_logits_of_the_trained_one(trained, tmp_path):
    first, second = load_pretrained(load_any(trained)), load_pretrained(load_any(trained / "model"))
    ids = np.arange(5, LAST)
    batch = Batch.from_rows([ids])
    every = torch.arange(len(ids))
    assert torch.equal(
        first.model.eval()(batch, backward=every).backward_logits,
        second.model.eval()(batch, backward=every).backward_logits,
    )
    assert first.new_heads == ("pooler",)
    assert first.metadata.objective == "forward+backward"


def test_a_resumed_run_ends_as_an_uninterrupted_one(corpus, tmp_path):
    options = {"steps": 5, "save_every": 2, "evaluate_every": 3, "dropout": 0.1}
    run(corpus, tmp_path / "straight", **options)
    settings = {"architecture": "elmo", "size": "tiny", "rows_per_step": 8, "max_length": 24, "precision": "fp32"}
    parts = settings_from_recipe({**settings, "device": "cpu", **options})
    with killed_at_evaluation(3):
        pretrain(corpus, tmp_path / "broken", *parts)
    pretrain(corpus, tmp_path / "broken", *parts, resume=True)
    assert_same_files(tmp_path / "straight", tmp_path / "broken", "model/model.safetensors")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "mlm"}, "an objective for the architecture ELMo"),
        (
            {"objective": "left-to-right"},
            r"an objective for the architecture ELMo; .*use --objective forward\+backward",
        ),
        ({"architecture": "bert", "objective": "forward+backward"}, "an objective for the architecture BERT"),
        ({"architecture": "bert", "sampled_pieces": 5}, "the whole vocabulary in the loss of the architecture BERT"),
        ({"sampled_pieces": 0}, "sampled_pieces must be above 0"),
        ({"heads": 4}, "an architecture with a choice of heads"),
        ({"positions": "sinusoidal"}, "an architecture with a choice of positions"),
    ],
)
def test_what_does_not_fit_is_refused(corpus, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        run(corpus, tmp_path / "run", steps=1, **options)


def test_it_fills_no_masks(trained):
    heads = load_pretraining_heads(trained, device="cpu", precision="fp32", needs=("mlm",))
    with pytest.raises(Exception, match="predicts the next piece"):
        heads.fill("let us [MASK] out")


def test_a_run_with_samples_learns_too(corpus, tmp_path):
    """The held-out figures are those of the whole vocabulary."""
    scores = run(corpus, tmp_path / "run", steps=40, sampled_pieces=8).scores
    assert scores["held_out_forward_perplexity"] < 8
    assert scores["held_out_backward_perplexity"] < 8


def test_a_run_is_continued_with_its_own_objective(corpus, trained, tmp_path):
    options = {"init": str(trained / "model"), "architecture": None, "size": None, "steps": 2}
    result = run(corpus, tmp_path / "run", **options)
    assert result.scores["held_out_forward_perplexity"] < 6
    assert dataclasses.asdict(result)["steps"] == 2
