"""A frozen encoder: its vectors equal those of a plain loop, it never changes, and taggers learn on them."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.frozen_samples import CONFIG, TOKENIZER, encoder, hidden_states, row
from bertsmith.checkpoints.architectures import new_encoder
from bertsmith.checkpoints.assembly import save_pretrained
from bertsmith.datasets.examples import TaggedExample
from bertsmith.encoding import row_encoder
from bertsmith.encoding.frozen import FrozenEncoder
from bertsmith.encoding.loading import load_frozen_encoder
from bertsmith.errors import CheckpointError, ConfigError, RunError
from bertsmith.finetuning.frozen_tagging import (
    TAGGER_RECIPE,
    BiLSTMTagger,
    FeatureTagging,
    TaggerSettings,
    train_tagger,
    word_vectors,
)
from bertsmith.heads.models import EncoderForPreTraining
from bertsmith.model.layer_choice import layer_choice
from bertsmith.model_files.metadata import ModelMetadata
from bertsmith.runtime import choose
from bertsmith.task_data.split import TaskData
from bertsmith.tasks.tagging import TaggingTask
from bertsmith.tasks.task import TaskSettings, TaskSpec
from bertsmith.training.loop import TIMES
from bertsmith.training.run_folder import RunFolder
from model.examples import shake
from tasks.architecture_samples import write_base_model

TAGS = ("O", "B-X", "I-X")
SETTINGS = TaggerSettings(layers="sum-all", width=12, dropout=0.2, batch_size=6, epochs=3, micro_words=40)
RECIPE = dataclasses.replace(TAGGER_RECIPE, learning_rate=1e-2, log_every=1, save_every=2)


def tagging(**settings: object) -> TaggingTask:
    spec = TaskSpec(
        kind="tagging",
        name="ner",
        labels=TAGS,
        scheme="IOB2",
        metric="f1",
        settings=TaskSettings(**{"max_length": 32, **settings}),
    )
    return TaggingTask(spec)


def sentences(count: int, seed: int = 0) -> list[TaggedExample]:
    """Sentences in which `a` begins an entity, and the word after `a` is inside it."""
    rng = np.random.default_rng(seed)
    result = []
    for number in range(count):
        words = ["".join(rng.choice(list("abcd"), rng.integers(1, 3))) for _ in range(rng.integers(1, 9))]
        starts = [word[0] == "a" for word in words]
        before = [False, *starts[:-1]]
        tags = ["B-X" if start else "I-X" if after else "O" for start, after in zip(starts, before, strict=True)]
        result.append(TaggedExample(id=str(number), words=tuple(words), tags=tuple(tags), place=f"sentence {number}"))
    return result


def data(count: int = 24) -> TaskData:
    return TaskData(train=sentences(count), dev=sentences(10, seed=1), digests={"train": str(count)})


@pytest.mark.parametrize("layers", ["embeddings", "last", "concat-last-4", "sum-all", "-1,0"])
@pytest.mark.parametrize("micro_tokens", [20, 4096])
def test_the_vector_of_a_word_is_that_of_its_first_piece(layers: str, micro_tokens: int) -> None:
    """Compared with a loop over sentences and words, for any split into micro-batches."""
    frozen, examples = encoder(micro_tokens=micro_tokens), sentences(12)
    choice = frozen.choice(layers)
    words = word_vectors(frozen, tagging(), examples, choice)
    expected = []
    for sentence in examples:
        pieces = [TOKENIZER.encode(word).tolist() for word in sentence.words]
        states = hidden_states(frozen.model, row([piece for word in pieces for piece in word]))
        first = 1
        for word in pieces:
            expected.append(np.stack([states[layer][first].numpy() for layer in choice.layers]))
            first += len(word)
    assert words.vectors.dtype == np.float32
    np.testing.assert_allclose(words.vectors, np.stack(expected), atol=2e-5)
    assert words.sentences.rows.lengths.tolist() == [len(sentence.words) for sentence in examples]
    gold = [TAGS.index(tag) for sentence in examples for tag in sentence.tags]
    assert words.sentences.targets.tolist() == gold


def test_a_sentence_that_is_read_in_windows_is_one_sentence_of_the_tagger() -> None:
    frozen = encoder()
    long = TaggedExample(id="0", words=tuple("abcdefghij" * 5), tags=("O",) * 50, place="sentence 0")
    short = TaggedExample(id="1", words=("ab", "c"), tags=("B-X", "I-X"), place="sentence 1")
    words = word_vectors(frozen, tagging(max_length=12, stride=3), [long, short], frozen.choice("last"))
    assert words.sentences.rows.lengths.tolist() == [50, 2]
    assert words.vectors.shape == (52, 1, 32)
    alone = word_vectors(frozen, tagging(), [short], frozen.choice("last"))
    np.testing.assert_allclose(words.vectors[50:], alone.vectors, atol=2e-5)


@pytest.mark.parametrize("layers", ["concat-last-4", "sum-all"])
def test_training_on_its_vectors_changes_no_bit_of_the_encoder(layers: str, tmp_path: Path) -> None:
    """The parameters are really frozen."""
    frozen = encoder()
    before = {name: tensor.clone() for name, tensor in frozen.model.state_dict().items()}
    result = train_tagger(frozen, tagging(), data(), tmp_path / "run", SETTINGS, RECIPE)
    assert result.steps == 12
    after = frozen.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not frozen.model.training
    assert not any(p.requires_grad or p.grad is not None for p in frozen.model.parameters())
    inside = {id(p) for p in frozen.model.parameters()}
    assert not inside & {id(p) for p in result.model.parameters()}


def test_a_tagger_learns_from_the_word_next_to_a_word(tmp_path: Path) -> None:
    """Embedding vectors contain nothing about neighboring words, so the BiLSTM must read them."""
    settings = dataclasses.replace(SETTINGS, layers="embeddings", batch_size=20, epochs=20, dropout=0.0)
    result = train_tagger(encoder(), tagging(), data(60), tmp_path / "run", settings, RECIPE)
    lines = RunFolder.open(tmp_path / "run").metrics("train")
    assert lines[-1]["loss"] < 0.1 * lines[0]["loss"]
    assert lines[-1]["accuracy"] > 0.95
    assert result.scores["f1"] > 0.9
    assert result.shares == ()
    held = [line["held_out_f1"] for line in RunFolder.open(tmp_path / "run").metrics("evaluation")]
    assert result.scores["f1"] == max(held)


def test_layer_weights_are_learned_unless_a_plain_sum_is_requested(tmp_path: Path) -> None:
    learned = train_tagger(encoder(), tagging(), data(), tmp_path / "learned", SETTINGS, RECIPE)
    assert sum(learned.shares) == pytest.approx(1)
    assert len(learned.shares) == 4
    assert max(abs(share - 0.25) for share in learned.shares) > 1e-3
    plain = dataclasses.replace(SETTINGS, plain_sum=True)
    result = train_tagger(encoder(), tagging(), data(), tmp_path / "plain", plain, RECIPE)
    assert result.shares == ()
    assert not [name for name, _ in result.model.named_parameters() if name.startswith("mix")]


def test_stopped_and_resumed_is_the_straight_run_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With dropout, and a stop between two checkpoints."""

    class PowerCutError(Exception):
        pass

    whole = train_tagger(encoder(), tagging(), data(), tmp_path / "straight", SETTINGS, RECIPE)
    loss = FeatureTagging.loss

    def cut_off(self: FeatureTagging, model, micro_batch):
        if micro_batch.step == 7:
            raise PowerCutError
        return loss(self, model, micro_batch)

    with monkeypatch.context() as patch:
        patch.setattr(FeatureTagging, "loss", cut_off)
        with pytest.raises(PowerCutError):
            train_tagger(encoder(), tagging(), data(), tmp_path / "cut", SETTINGS, RECIPE)
    assert RunFolder.open(tmp_path / "cut").last_step() == 6
    resumed = train_tagger(encoder(), tagging(), data(), tmp_path / "cut", SETTINGS, RECIPE, resume=True)
    for name in ("checkpoints/step-00000012/model.safetensors", "checkpoints/step-00000012/optimizer.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    logs = [
        [
            {name: value for name, value in line.items() if name not in TIMES}
            for line in RunFolder.open(tmp_path / run).metrics()
        ]
        for run in ("straight", "cut")
    ]
    assert logs[0] == logs[1]
    assert resumed.scores == whole.scores
    changed = dataclasses.replace(SETTINGS, layers="last")
    with pytest.raises(RunError, match="layers"):
        train_tagger(encoder(), tagging(), data(), tmp_path / "cut", changed, RECIPE, resume=True)


def workload(**settings: object) -> FeatureTagging:
    frozen, task = encoder(), tagging()
    words = word_vectors(frozen, task, sentences(7), frozen.choice("sum-all"))
    chosen = TaggerSettings(**{"layers": "sum-all", "width": 12, "dropout": 0.0, "batch_size": 5, **settings})
    model = BiLSTMTagger(frozen.choice("sum-all"), 32, len(TAGS), width=12, dropout=0.0)
    return FeatureTagging(model, task, words, None, frozen, chosen, seed=3)


def test_every_epoch_has_each_sentence_once_and_steps_cross_epoch_boundaries() -> None:
    one = workload()
    stream = list(itertools.chain.from_iterable(one.sentences_of_step(step).tolist() for step in range(7)))
    epochs = [stream[start : start + 7] for start in range(0, 35, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    assert one.sentences_of_step(4).tolist() == stream[20:25]


def test_the_split_into_micro_batches_and_ranks_changes_only_rounding() -> None:
    losses, gradients, words = [], [], []
    for micro_words, world in ((4096, 1), (1, 1), (6, 2)):
        one = workload(micro_words=micro_words)
        plans = [one.plan(1, rank, world) for rank in range(world)]
        parts = [part for plan in plans for part in plan.micro_batches]
        total = sum(one.loss(one.model, part)[0] for part in parts)
        total.backward()
        losses.append(total.item())
        gradients.append({name: p.grad for name, p in one.model.named_parameters()})
        words.append({plan.tokens for plan in plans})
        assert len(parts) > 1 or micro_words == 4096
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)
    assert words[0] == words[1] == words[2]
    for other in gradients[1:]:
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(other[name], gradient, rtol=1e-4, atol=1e-6)


def test_the_penalty_on_the_mix_is_counted_once_in_a_step() -> None:
    """However the step is split, and as lambda times the sum of the squared scores."""
    totals = {}
    for penalty in (0.0, 0.5):
        for micro_words in (4096, 1):
            one = workload(mix_penalty=penalty, micro_words=micro_words)
            with torch.no_grad():
                one.model.mix.scores.copy_(torch.tensor([1.0, 0.0, 2.0, -1.0]))
            parts = one.plan(0, 0, 1).micro_batches
            totals[penalty, micro_words] = sum(one.loss(one.model, part)[0].item() for part in parts)
    for micro_words in (4096, 1):
        assert totals[0.5, micro_words] - totals[0.0, micro_words] == pytest.approx(0.5 * 6, rel=1e-5)


def test_a_strong_penalty_keeps_the_learned_weights_near_the_mean(tmp_path: Path) -> None:
    found = []
    for penalty in (0.0, 10.0):
        settings = dataclasses.replace(SETTINGS, layers="sum-with-embeddings", mix_penalty=penalty)
        result = train_tagger(encoder(), tagging(), data(), tmp_path / str(penalty), settings, RECIPE)
        assert len(result.shares) == 5
        found.append(max(result.shares) - min(result.shares))
    assert found[1] < found[0] / 2


def test_a_tagger_reads_the_three_layers_of_elmo(tmp_path: Path) -> None:
    folder = write_base_model(tmp_path / "base", "elmo")
    words = [*"anna bert rome oslo".split()]
    rng = np.random.default_rng(0)
    examples = []
    for number in range(40):
        chosen = tuple(rng.choice(words, 4).tolist())
        tags = tuple("B-X" if word in words[:2] else "O" for word in chosen)
        examples.append(TaggedExample(id=str(number), words=chosen, tags=tags, place=f"sentence {number}"))
    settings = dataclasses.replace(SETTINGS, layers="sum-with-embeddings", epochs=40, dropout=0.0)
    task = TaskData(train=examples[:30], dev=examples[30:])
    frozen = load_frozen_encoder(folder, device="cpu")
    result = train_tagger(frozen, tagging(), task, tmp_path / "run", settings, RECIPE)
    assert len(result.shares) == 3
    assert result.scores["f1"] > 0.9


def test_a_sentence_is_read_from_both_ends_and_independently_of_its_neighbors() -> None:
    choice = layer_choice("concat-last-4", 4)
    tagger = BiLSTMTagger(choice, 8, 5, width=6, dropout=0.5, seed=1).eval()
    lengths = [3, 1, 6, 2]
    picked = torch.randn(12, 4, 8, generator=torch.Generator().manual_seed(0))
    logits = tagger(picked, lengths)
    assert logits.shape == (12, 5)
    for part, alone in zip(picked.split(lengths), logits.split(lengths), strict=True):
        torch.testing.assert_close(tagger(part, [len(part)]), alone)
    changed = picked.clone()
    changed[9] += 1  # the last word of the third sentence
    moved = (tagger(changed, lengths) != logits).any(dim=1)
    assert moved.tolist() == [False] * 4 + [True] * 6 + [False] * 2


def test_a_tagger_is_initialized_by_its_seed_without_the_global_generator() -> None:
    choice = layer_choice("sum-all", 4)
    before = torch.get_rng_state()
    first, again, other = (BiLSTMTagger(choice, 8, 3, width=6, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [name for name in first if not name.startswith("mix.")]
    assert not any(torch.equal(first[name], other[name]) for name in drawn)
    assert all(0.2 < first[name].abs().max() <= 1 / 6**0.5 for name in drawn)
    assert not torch.equal(first["lstm.weight_hh_l0"], first["lstm.weight_hh_l0_reverse"])


def test_vectors_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, examples = encoder(), sentences(12)
    words = sum(len(sentence.words) for sentence in examples)
    needed = words * 4 * 32 * 4
    choice = frozen.choice("concat-last-4")
    monkeypatch.setattr(row_encoder, "memory_bytes", lambda: 2 * needed - 2)
    with pytest.raises(ConfigError, match=f"for {words} positions; choose fewer layers"):
        word_vectors(frozen, tagging(), examples, choice)
    monkeypatch.setattr(row_encoder, "memory_bytes", lambda: 2 * needed)
    assert word_vectors(frozen, tagging(), examples, choice).vectors.nbytes == needed


def test_rows_longer_than_the_model_reads_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_length of at most 32"):
        word_vectors(encoder(), tagging(max_length=64), sentences(1), layer_choice("last", 4))


@pytest.mark.parametrize(("name", "value"), [("width", 0), ("dropout", 1.0), ("epochs", 0.0), ("micro_words", -1)])
def test_invalid_settings_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        TaggerSettings(**{name: value})


def test_no_training_sentences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="training sentences"):
        train_tagger(encoder(), tagging(), TaskData(train=(), dev=()), tmp_path / "run")


def test_the_encoder_of_a_model_folder_gives_the_vectors_of_the_model_in_memory(tmp_path: Path) -> None:
    """Every model that can be fine-tuned can also provide features."""
    model = EncoderForPreTraining(new_encoder(CONFIG))
    shake(model)
    save_pretrained(tmp_path / "model", model, TOKENIZER, ModelMetadata.from_dict({}))
    loaded = load_frozen_encoder(tmp_path / "model", device="cpu")
    assert set(loaded.digests) == {"base", "vocabulary"}
    direct = FrozenEncoder(model.encoder, TOKENIZER, choose("cpu", "fp32"))
    vectors = [word_vectors(one, tagging(), sentences(5), one.choice("sum-all")).vectors for one in (loaded, direct)]
    assert np.array_equal(*vectors)
    for name in ("vocab.txt", "tokenizer.json"):
        (tmp_path / "model" / name).unlink()
    with pytest.raises(CheckpointError, match="vocabulary"):
        load_frozen_encoder(tmp_path / "model", device="cpu")
