"""Why masks: a bidirectional model that predicts the next word while it can see it learns only to copy.

In a bidirectional model, attention can simply pass the next word to the state of the current one. The loss falls to
zero, yet the model never had to understand a context, so its states are useless. A left-to-right twin cannot look
ahead, but half of every context is hidden from it. Masking removes the word itself and leaves both sides visible.
Source: Devlin et al. (2018), sections 1 and 3.1.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from toy import corpus_of, fit, small_model

from bertsmith import Corpus
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch
from bertsmith.training.pretraining.settings import PretrainingDataSettings

# Two kinds of things. Some nouns can be either; only the adjective, verb and place around them reveal which.
NOUNS = (("horse", "cat", "goat", "bird"), ("lamp", "cart", "pump", "clock"))
BOTH_KINDS = ("crane", "mouse", "bat", "ram")
CLUES = (
    (("hungry", "furry", "tame", "sleepy"), ("rusty", "wooden", "broken", "costly")),
    (("grazes", "bites", "drinks", "naps"), ("rattles", "tilts", "creaks", "rolls")),
    (("stable", "nest", "meadow", "kennel"), ("workshop", "garage", "factory", "depot")),
)
NEUTRAL = ("very", "stays", "road")  # instead of a clue
NOUN, PLACE = 4, 8  # positions in "[CLS] one <adjective> old <noun> <verb> near the <place> . [SEP]"
DATA = {"max_length": 16, "short_sequence_probability": 0.0, "dynamic": True}


def sentence(kind: int, shown: np.ndarray, noun: str, known: slice, rng: np.random.Generator) -> str:
    """A sentence about a noun, with the `shown` ones of three clues to its kind; clue words are drawn from `known`."""
    words = [rng.choice(CLUES[i][kind][known]) if shown[i] else NEUTRAL[i] for i in range(3)]
    return f"one {words[0]} old {noun} {words[1]} near the {words[2]} ."


@torch.no_grad()
def states(model: EncoderForPreTraining, corpus: Corpus, texts: list[str], length: int = 11) -> torch.Tensor:
    """The last hidden states [texts, length, width] of the first `length` tokens of each row."""
    vocabulary = corpus.vocabulary
    rows = [[vocabulary.cls_id, *corpus.tokenizer.encode(t, special_tokens=True), vocabulary.sep_id] for t in texts]
    flat = np.array(rows)[:, :length].ravel()
    return model.encoder(Batch.from_flat(flat, 0 * flat, [length] * len(texts))).view(len(texts), length, -1)


@torch.no_grad()
def hidden_loss(model: EncoderForPreTraining, corpus: Corpus, texts: list[str], masked: bool) -> float:
    """The loss in nats for the word of place in each sentence when it is hidden: masked, or still to come."""
    masks = [" ".join([*text.split()[: PLACE - 1], "[MASK]", "."]) for text in texts]
    seen = states(model, corpus, masks)[:, PLACE] if masked else states(model, corpus, texts, PLACE)[:, PLACE - 1]
    places = torch.tensor([corpus.vocabulary.index[text.split()[PLACE - 1]] for text in texts])
    return float(F.cross_entropy(model.mlm(seen, model.encoder.word_table), places))


def kind_known(model: EncoderForPreTraining, corpus: Corpus, clue: int, rng: np.random.Generator) -> float:
    """How often the state of an ambiguous noun is closer to the mean of its kind, with one clue in the sentence.

    The means are computed on sentences with half of the clue words, the test uses the other half.
    """

    def nouns(kind: int, known: slice) -> torch.Tensor:
        texts = [sentence(kind, np.arange(3) == clue, str(rng.choice(BOTH_KINDS)), known, rng) for _ in range(200)]
        return states(model, corpus, texts)[:, NOUN]

    means = torch.stack([nouns(kind, slice(0, 2)).mean(0) for kind in (0, 1)])
    right = [torch.cdist(nouns(kind, slice(2, 4)), means).argmin(1) == kind for kind in (0, 1)]
    return float(torch.cat(right).float().mean())


def main(steps: int = 400, sentences: int = 6500) -> dict[str, tuple[float, ...]]:
    """Prints and returns, for each model, its loss, its loss for a hidden word, and what its states know."""
    rng = np.random.default_rng(1)
    kinds, shown = rng.integers(2, size=sentences), rng.random((sentences, 3)) < 0.9
    nouns = [str(rng.choice(NOUNS[k] if rng.random() < 0.5 else BOTH_KINDS)) for k in kinds]
    texts = [sentence(k, s, n, slice(4), rng) for k, s, n in zip(kinds, shown, nouns, strict=True)]
    found = {}
    print("                          own loss   loss, word hidden   kind known: clue left   clue right")
    with tempfile.TemporaryDirectory() as folder:
        corpus = corpus_of([[text] for text in texts[500:]], Path(folder) / "corpus")
        for name, objective, causal in (
            ("untrained", None, False),
            ("masked", "mlm", False),
            ("left-to-right", "left-to-right", True),
            ("both sides, no masks", "left-to-right", False),
        ):
            model, loss = small_model(corpus, is_causal=causal), float("nan")
            if objective:
                data = PretrainingDataSettings(objective=objective, **DATA)
                loss = fit(model, corpus, data, steps)["held_out_loss"]
            hidden = hidden_loss(model, corpus, texts[:500], masked=objective == "mlm")
            known = (kind_known(model, corpus, clue, np.random.default_rng(2)) for clue in (0, 2))
            found[name] = (loss, hidden, *known)
            print("{:24}  {:8.3f}   {:17.3f}   {:21.0%}   {:10.0%}".format(name, *found[name]), flush=True)
    return found


if __name__ == "__main__":
    main()
