"""An initialization from the corpus: what it sets, that the heads look where they should, and that a model learns."""

import numpy as np
import pytest
import torch

from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.layers import sinusoidal_positions
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.initialization import NEIGHBORS, initialize_from_corpus

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"w{number}" for number in range(40)], "never"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("initialization")
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{int(number)}" for number in rng.zipf(1.5, 12) % 40) for _ in range(300)]
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    tokenizer = WordPieceTokenizer(Vocabulary(PIECES), TextRules())
    build_corpus([folder / "text.txt"], tokenizer, folder / "corpus", held_out=0, workers=1)
    return Corpus.open(folder / "corpus")


def batch_of(ids) -> Batch:
    ids = np.asarray(ids)
    return Batch.from_rows([ids])


def config(**changes) -> BertConfig:
    return BertConfig(
        **{
            "vocab_size": len(PIECES),
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "intermediate_size": 64,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            **changes,
        }
    )


def test_the_first_predictions_are_the_frequencies_of_the_corpus(corpus):
    model = untrained(config(), 1)
    initialize_from_corpus(model, corpus, 1)
    counts = corpus.token_counts() + 1
    np.testing.assert_allclose(
        torch.softmax(model.mlm.bias.detach(), 0).numpy(), counts / counts.sum(), rtol=1e-5, atol=1e-7
    )


def test_only_pieces_that_occur_get_new_vectors(corpus):
    model, before = untrained(config(), 1), untrained(config(), 1)
    initialize_from_corpus(model, corpus, 1)
    new, old = model.encoder.word_table, before.encoder.word_table
    occurs = torch.from_numpy(corpus.token_counts() > 0)
    assert torch.equal(new[~occurs], old[~occurs])
    assert not (new[occurs] == old[occurs]).any()
    np.testing.assert_allclose(new[occurs].square().mean(dim=1).sqrt().detach(), 0.1, rtol=1e-4)


@pytest.mark.parametrize("length", [12, 60])
def test_each_head_of_the_first_layer_looks_at_its_neighbor(corpus, length):
    model = untrained(config(), 1).eval()
    initialize_from_corpus(model, corpus, 1)
    ids = np.random.default_rng(1).integers(5, 45, length)
    trace = Trace(with_attentions=True)
    model.encoder(batch_of(ids), trace=trace)
    attention = trace.attentions[0][0]  # [heads, length, length]
    for head, offset in enumerate(NEIGHBORS):
        places = range(max(0, -offset), min(length, length - offset))
        result = [int(attention[head, position].argmax()) - position for position in places]
        assert np.mean([distance == offset for distance in result]) > 0.7, (head, offset)


def nearest(weights: torch.Tensor) -> int:
    """The distance of the token to which a head attends most, over all positions of a text; weights [T, T].

    A single position says little: the singular vectors, and so the pieces, differ from one processor to another.
    """
    distances = range(1 - len(weights), len(weights))
    shared = {distance: weights.diagonal(distance) for distance in distances}
    return max((n for n in distances if len(shared[n]) > len(weights) / 2), key=lambda n: float(shared[n].mean()))


def test_heads_of_a_left_to_right_model_look_only_to_the_left(corpus):
    model = untrained(config(is_causal=True), 1).eval()
    initialize_from_corpus(model, corpus, 1)
    trace = Trace(with_attentions=True)
    model.encoder(batch_of(range(5, 35)), trace=trace)
    assert [nearest(trace.attentions[0][0][head]) for head in range(8)] == [-(head + 1) for head in range(8)]


@pytest.mark.parametrize("changes", [{"position_embedding_type": "none"}, {"position_embedding_type": "sinusoidal"}])
def test_without_learned_positions_queries_and_keys_stay_as_they_were(corpus, changes):
    model, before = untrained(config(**changes), 1), untrained(config(**changes), 1)
    initialize_from_corpus(model, corpus, 1)
    # Next to fixed sines, words are larger, and what the head multiplies them with is smaller.
    changed = {"mlm.bias", *(["mlm.norm.weight"] if changes["position_embedding_type"] == "sinusoidal" else [])}
    for (name, new), (_, old) in zip(model.named_parameters(), before.named_parameters(), strict=True):
        assert torch.equal(new, old) == ("word" not in name and name not in changed), name


def test_heads_of_an_odd_width_look_at_their_neighbors_too(corpus):
    model = untrained(config(hidden_size=8 * 15), 1).eval()
    initialize_from_corpus(model, corpus, 1)
    trace = Trace(with_attentions=True)
    model.encoder(batch_of(range(5, 35)), trace=trace)
    assert [nearest(trace.attentions[0][0][head]) for head in range(8)] == list(NEIGHBORS)


@pytest.mark.parametrize("heads", [1, 2, 64, 128])
def test_any_number_of_heads_gives_finite_parameters(corpus, heads):
    model = untrained(config(num_attention_heads=heads), 1)
    initialize_from_corpus(model, corpus, 1)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_words_do_not_drown_in_fixed_sines_and_the_first_scores_are_as_small_as_ever(corpus):
    models = [untrained(config(position_embedding_type=kind), 1).eval() for kind in ("sinusoidal", "absolute")]
    scores, sines = [], sinusoidal_positions(32, 128)
    for model in models:
        initialize_from_corpus(model, corpus, 1)
        hidden = torch.randn(50, 128, generator=torch.Generator().manual_seed(1))
        scores.append((model.mlm(hidden, model.encoder.word_table) - model.mlm.bias).detach())
    occurs = torch.from_numpy(corpus.token_counts() > 0)
    words, sines = (vectors.square().mean().sqrt().item() for vectors in (models[0].encoder.word_table[occurs], sines))
    assert 0.3 < words / sines < 1
    torch.testing.assert_close(scores[0][:, occurs], scores[1][:, occurs], rtol=1e-3, atol=1e-4)
