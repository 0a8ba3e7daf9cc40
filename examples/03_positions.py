"""What position embeddings do: the same model with learned, sinusoidal and no positions, on two small languages.

Without positions an encoder sees a bag of words: if its input is shuffled, its output is shuffled in the same way. Such
a model must fail where word order carries meaning, and loses nothing where it does not. Sources: Vaswani et al. (2017),
section 3.5, for the fixed table; Devlin et al. (2018), section 3, for the learned one.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from toy import corpus_of, fit, small_model

from bertsmith import Corpus
from bertsmith.models.encoders.bert import BertModel
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig
from bertsmith.training.pretraining.settings import PretrainingDataSettings

NAMES = ("cat", "dog", "hen", "owl", "cow", "bee", "pig", "lion")
SOUNDS = ("purrs", "barks", "clucks", "hoots", "moos", "hums", "grunts", "roars")
SHOPS = (("nails", "glue", "paint"), ("bread", "cakes", "pies"), ("roses", "ferns", "moss"), ("ink", "chalk", "pens"))
KINDS = ("absolute", "sinusoidal", "none")
# Two [MASK] in each row of eight words; no other corruption.
MASKS = {"masked_share": 0.2, "mask_share": 1.0, "keep_share": 0.0, "random_share": 0.0}
DATA = PretrainingDataSettings(objective="mlm", max_length=16, short_sequence_probability=0.0, dynamic=True, **MASKS)


def animals(rng: np.random.Generator) -> str:
    """Order matters: four animals, each followed by its sound, so the neighbor of a missing word determines it.

    In a bag of words, two words without a partner show which two are missing, but not which one is where.
    """
    return " ".join(f"{NAMES[animal]} {SOUNDS[animal]}" for animal in rng.permutation(8)[:4])


def shopping(rng: np.random.Generator) -> str:
    """Order does not matter: eight items from one shop, most of them its best-selling item."""
    return " ".join(rng.choice(SHOPS[rng.integers(len(SHOPS))], size=8, p=(0.8, 0.1, 0.1)))


def bag_difference(kind: str) -> float:
    """The difference between an untrained model's output for shuffled words and its shuffled output."""
    words, order = np.arange(5, 14), np.random.default_rng(1).permutation(9)
    model = BertModel(BertConfig.named("tiny", vocab_size=20, position_embedding_type=kind))
    with torch.no_grad():
        straight, shuffled = (model(Batch.from_flat(ids, 0 * ids, [9])) for ids in (words, words[order]))
    return float((straight[torch.from_numpy(order)] - shuffled).abs().max())


def start(corpus: Corpus, seed: int, kind: str) -> EncoderForPreTraining:
    """An untrained model; with the sinusoidal table, word embeddings are scaled up as in the 2017 paper."""
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
            # The language of shops is learned in a quarter of the time.
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
