"""What positions are for: the same model with learned, with sinusoidal and with no positions, on two small languages.

Without positions an encoder sees a bag of words: shuffle its input, and its output is shuffled the same way. Where the
order carries the meaning such a model has to fail, and where it carries none it loses nothing. Sources: Vaswani et al.
(2017), section 3.5, for the fixed table; Devlin et al. (2018), section 3, for the learned one.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from toy import corpus_of, fit, small_model

from bertsmith import Corpus
from bertsmith.model.batch import Batch
from bertsmith.model.bert import BertModel
from bertsmith.model.config import BertConfig
from bertsmith.model.heads import EncoderForPreTraining
from bertsmith.pretraining.settings import PretrainingDataSettings

NAMES = ("cat", "dog", "hen", "owl", "cow", "bee", "pig", "lion")
SOUNDS = ("purrs", "barks", "clucks", "hoots", "moos", "hums", "grunts", "roars")
SHOPS = (("nails", "glue", "paint"), ("bread", "cakes", "pies"), ("roses", "ferns", "moss"), ("ink", "chalk", "pens"))
KINDS = ("absolute", "sinusoidal", "none")
# Two [MASK] in each row of eight words, and nothing else changed.
MASKS = {"masked_share": 0.2, "mask_share": 1.0, "keep_share": 0.0, "random_share": 0.0}
DATA = PretrainingDataSettings(objective="mlm", max_length=16, short_sequence_probability=0.0, dynamic=True, **MASKS)


def animals(rng: np.random.Generator) -> str:
    """Order matters: four animals, each with its sound behind it, so that a missing word is told by its neighbour.

    In a bag of words, two words without a partner tell which two are missing, but not which is missing where.
    """
    return " ".join(f"{NAMES[animal]} {SOUNDS[animal]}" for animal in rng.permutation(8)[:4])


def shopping(rng: np.random.Generator) -> str:
    """Order does not matter: eight things from one shop, most of them the thing that it sells most."""
    return " ".join(rng.choice(SHOPS[rng.integers(len(SHOPS))], size=8, p=(0.8, 0.1, 0.1)))


def bag_difference(kind: str) -> float:
    """How far the output of an untrained model for shuffled words is from its shuffled output."""
    words, order = np.arange(5, 14), np.random.default_rng(1).permutation(9)
    model = BertModel(BertConfig.named("tiny", vocab_size=20, position_embedding_type=kind))
    with torch.no_grad():
        straight, shuffled = (model(Batch.from_flat(ids, 0 * ids, [9])) for ids in (words, words[order]))
    return float((straight[torch.from_numpy(order)] - shuffled).abs().max())


def start(corpus: Corpus, seed: int, kind: str) -> EncoderForPreTraining:
    """An untrained model; as in 2017, words are scaled up where the fixed table, all sines and cosines, joins them."""
    model = small_model(corpus, seed, position_embedding_type=kind)
    if kind == "sinusoidal":
        model.encoder.embeddings.word.weight.data *= 3
    return model


def main(
    steps: int = 200, rows: int = 3000, seeds: int = 3, kinds: Sequence[str] = KINDS
) -> dict[tuple[str, str], np.ndarray]:
    """Prints and returns, for each language and kind of positions, loss and accuracy [seeds, 2] on held-out rows."""
    found = {}
    print("language  positions    shuffled in = shuffled out   loss (nats)     accuracy")
    for language in (animals, shopping):
        with tempfile.TemporaryDirectory() as folder:
            rng = np.random.default_rng(1)
            corpus = corpus_of([[language(rng)] for _ in range(rows)], Path(folder) / "corpus", held_out=0.2)
            # What one shop sells is learned in a quarter of the time.
            enough = steps // 4 if language is shopping else steps
            for kind in kinds:
                scores = []
                for seed in range(seeds):
                    line = fit(start(corpus, seed, kind), corpus, dataclasses.replace(DATA, seed=seed), enough)
                    scores.append((line["held_out_mlm_loss"], line["held_out_mlm_accuracy"]))
                found[language.__name__, kind] = both = np.array(scores)
                (loss, right), (loss_spread, right_spread) = both.mean(0), both.std(0)
                print(
                    f"{language.__name__:8}  {kind:11}  {'yes' if bag_difference(kind) < 1e-5 else 'no':27}"
                    f"  {loss:.3f} ± {loss_spread:.3f}   {right:.1%} ± {right_spread:.1%}",
                    flush=True,
                )
    return found


if __name__ == "__main__":
    main()
