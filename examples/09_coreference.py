"""Who is "she"? Two ways to decide which of two candidates a pronoun refers to: a mention-pair scorer, and masking.

The scorer is a layer on top of the vectors of the pronoun and a candidate and their product; encoder and scorer are
trained jointly (`pair_scorer.py`). The other way needs no labels: the pronoun is masked, and the name with the higher
masked-LM probability is chosen, as for Winograd schemas. Sources: Lee et al. (2017), "End-to-end neural coreference
resolution", for the scorer; Levesque et al. (2012), "The Winograd schema challenge"; Kocijan et al. (2019), "A
surprisingly robust trick for the Winograd schema challenge", for masking.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from base_models import base_of_language, options
from mentions import NEITHER, Mentions, encoded, meeting, read_gap, that_fit, told
from pair_scorer import fit_scorer

from bertsmith import WordPieceTokenizer, quiet
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch
from bertsmith.tasks.metrics.labels import accuracy, f1
from bertsmith.text.tokenizers.pack import MODEL_LIMIT, pack_rows


@torch.inference_mode()
def by_masks(model: EncoderForPreTraining, tokenizer: WordPieceTokenizer, one: Mentions) -> int:
    """The candidate whose pieces have the higher mean log-probability at the masked pronoun."""
    fits = []
    for name in one.words()[1:]:
        pieces = torch.from_numpy(tokenizer.encode(name)).long()
        ids = tokenizer.encode(one.around("[MASK]" * len(pieces)), special_tokens=True)
        row = pack_rows([ids], template=tokenizer.template, max_length=MODEL_LIMIT)
        hidden = model.encoder(Batch.from_flat(row.token_ids, row.segment_ids, row.lengths))
        gaps = hidden[row.token_ids == tokenizer.vocabulary.mask_id]
        chances = model.mlm(gaps, model.encoder.word_table).log_softmax(-1)
        fits.append(float(chances.gather(1, pieces[:, None]).mean()))
    return int(np.argmax(fits))


def main(
    folder: Path, model: str | None = None, gap: Sequence[Path] = (), steps: int = 400, epochs: int = 6
) -> tuple[float, float | None]:
    """Prints and returns the accuracy of the scorer, and that of masking on texts where a candidate is meant."""
    rng, rate = np.random.default_rng(1), 3e-5
    learn, asked = [meeting(rng) for _ in range(400)], [meeting(rng) for _ in range(100)]
    if model is None:
        model = base_of_language(told([meeting(rng) for _ in range(1500)]), folder, steps, "mlm")
        rate = 1e-3
    if gap:
        learn, asked = (read_gap(path) for path in gap)
    loaded = load_pretrained(load_any(model))
    tokenizer, given = loaded.tokenizer, len(learn) + len(asked)
    assert tokenizer is not None, "a model folder with a vocabulary"
    learn, asked = (that_fit(group, tokenizer, loaded.model.config) for group in (learn, asked))
    print(f"{len(learn)} texts to learn from, {len(asked)} to ask; too long: {given - len(learn) - len(asked)}")

    # Masks first: the scorer changes the encoder.
    masks_right = None
    if "mlm" not in loaded.new_heads:
        answered = [one for one in asked if one.answer != NEITHER]
        masks_right = float(np.mean([by_masks(loaded.model, tokenizer, one) == one.answer for one in answered]))

    scorer = fit_scorer(loaded.model.encoder, tokenizer, learn, epochs, rate)
    with torch.inference_mode():
        guesses = np.array([int(scorer(*encoded([one], tokenizer)).argmax()) for one in asked])
    gold = np.array([one.answer for one in asked])
    pairs = [np.concatenate([values == 0, values == 1]).astype(int) for values in (gold, guesses)]

    for one, guess in zip(asked[:3], guesses, strict=False):
        pronoun, *names = one.words()
        print(f"  {one.text[:90]}  {pronoun} = {[*names, 'neither'][guess]}")
    print(f"scorer: {accuracy(gold, guesses):.0%} of three answers right, F1 of the pairs {f1(*pairs):.1%}", end=" ")
    print(f"(always the commonest answer: {np.bincount(gold).max() / len(gold):.0%})")
    if masks_right is None:
        print("masks: this model has no head to fill gaps")
    else:
        print(f"masks: {masks_right:.0%} of two candidates right (guessing: 50%)")
    return accuracy(gold, guesses), masks_right


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--gap", nargs=2, type=Path, default=(), metavar=("TRAIN", "TEST"), help="two GAP files")
    given = parser.parse_args()
    if given.gap and not given.model:
        parser.error("GAP texts are English: name an English model with --model")
    with tempfile.TemporaryDirectory() as temporary, quiet():
        main(Path(temporary), given.model, given.gap)
