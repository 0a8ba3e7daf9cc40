"""A frozen encoder: its vectors of words equal those of a plain loop, within the memory, for every split."""

from pathlib import Path

import numpy as np
import pytest

from baselines.frozen_samples import CONFIG, TOKENIZER, encoder, hidden_states, row
from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.datasets.examples import TaggedExample
from bertsmith.tasks.encoding import row_encoder
from bertsmith.tasks.encoding.frozen import FrozenEncoder, Vectors
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.tagging import TaggingTask
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from model.examples import shake


def sentences(count: int) -> list[TaggedExample]:
    rng = np.random.default_rng(0)
    result = []
    for number in range(count):
        words = tuple("".join(rng.choice(list("abcd"), rng.integers(1, 3))) for _ in range(rng.integers(1, 9)))
        result.append(TaggedExample(id=str(number), words=words, tags=None, location=f"sentence {number}"))
    return result


def vectors_of_words(
    frozen: FrozenEncoder, examples: list[TaggedExample], choice: LayerChoice, **settings: int
) -> Vectors:
    """The hidden states of the first piece of every word, [W, n, D], as a tagger reads them."""
    cut = TaskSettings(**{"max_length": 32, **settings})
    task = TaggingTask(TaskSpec(kind="tagging", name="ner", labels=("O",), settings=cut))
    return frozen.hidden_states(task.encode(examples, frozen.tokenizer), choice)


@pytest.mark.parametrize("layers", ["embeddings", "last", "concat-last-4", "sum-all", "-1,0"])
@pytest.mark.parametrize("micro_tokens", [20, 4096])
def test_the_vector_of_a_word_is_that_of_its_first_piece(layers: str, micro_tokens: int) -> None:
    """Compared with a loop over sentences and words, for any split into micro-batches."""
    frozen, examples = encoder(micro_tokens=micro_tokens), sentences(12)
    choice = frozen.choice(layers)
    expected = []
    for sentence in examples:
        pieces = [TOKENIZER.encode(word).tolist() for word in sentence.words]
        states = hidden_states(frozen.model, row([piece for word in pieces for piece in word]))
        first = 1
        for word in pieces:
            expected.append(np.stack([states[layer][first].numpy() for layer in choice.layers]))
            first += len(word)
    vectors = vectors_of_words(frozen, examples, choice)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, np.stack(expected), atol=2e-5)


def test_each_word_of_a_sentence_that_is_read_in_windows_has_one_vector() -> None:
    frozen = encoder()
    long = TaggedExample(id="0", words=tuple("abcdefghij" * 5), tags=None, location="sentence 0")
    short = TaggedExample(id="1", words=("ab", "c"), tags=None, location="sentence 1")
    vectors = vectors_of_words(frozen, [long, short], frozen.choice("last"), max_length=12, stride=3)
    assert vectors.shape == (52, 1, 32)
    np.testing.assert_allclose(vectors[50:], vectors_of_words(frozen, [short], frozen.choice("last")), atol=2e-5)


def test_vectors_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, examples = encoder(), sentences(12)
    words = sum(len(sentence.words) for sentence in examples)
    needed = words * 4 * 32 * 4
    choice = frozen.choice("concat-last-4")
    monkeypatch.setattr(row_encoder, "memory_bytes", lambda: 2 * needed - 2)
    with pytest.raises(ConfigError, match=f"for {words} positions; choose fewer layers"):
        vectors_of_words(frozen, examples, choice)
    monkeypatch.setattr(row_encoder, "memory_bytes", lambda: 2 * needed)
    assert vectors_of_words(frozen, examples, choice).nbytes == needed


def test_the_encoder_of_a_model_folder_gives_the_vectors_of_the_model_in_memory(tmp_path: Path) -> None:
    """Every model that can be fine-tuned can also provide features."""
    model = EncoderForPreTraining(new_encoder(CONFIG))
    shake(model)
    save_pretrained(tmp_path / "model", model, TOKENIZER, ModelMetadata.from_dict({}))
    loaded = load_frozen_encoder(tmp_path / "model", device="cpu")
    plain = load_frozen_encoder(tmp_path / "model", device="cpu", products="plain")
    assert set(loaded.digests) == {"base", "vocabulary"}
    direct = FrozenEncoder(model.encoder, TOKENIZER, choose("cpu", "fp32"))
    vectors = [
        vectors_of_words(encoder, sentences(5), encoder.choice("sum-all")) for encoder in (plain, direct, loaded)
    ]
    assert np.array_equal(*vectors[:2])
    np.testing.assert_allclose(vectors[2], vectors[1], rtol=0, atol=1e-5)  # prepared layers may have other last digits
    for name in ("vocab.txt", "tokenizer.json"):
        (tmp_path / "model" / name).unlink()
    with pytest.raises(CheckpointError, match="vocabulary"):
        load_frozen_encoder(tmp_path / "model", device="cpu")
