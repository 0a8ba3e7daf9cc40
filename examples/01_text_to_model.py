"""From text to a model that fills in masked words: vocabulary, corpus, pre-training and prediction in Python.

The steps are those of the commands `vocab`, `corpus`, `pretrain`, `fill` and `next`. The objective is to predict masked
words and to decide whether the second sentence follows the first; the text itself contains all answers
(self-supervised). Sources: Devlin et al. (2018), section 3.1; Taylor (1953), "Cloze procedure", for filling in words.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from toy import village

import bertsmith

GAPS = ("the gardeners [MASK] the roses .", "the gardener [MASK] the roses .")
NEXT = ("the baker stirs the soup .", "then she slices the bread .", "then they row the boat .")


def main(folder: Path, steps: int = 600, documents: int = 1500) -> tuple[dict[str, float], list[str], list[float]]:
    """Prints and returns the scores, the most likely piece for each [MASK], and next-sentence probabilities."""
    # A text: one sentence per line, a blank line between documents.
    text = folder / "village.txt"
    text.write_text("\n\n".join("\n".join(d) for d in village(documents, np.random.default_rng(1))), encoding="utf-8")

    # A vocabulary, learned from the words of the text.
    tokenizer = bertsmith.learn_vocabulary([text], 80).tokenizer
    print("pieces:", " ".join(tokenizer.tokenize(GAPS[0], special_tokens=True)))

    # A corpus: token ids in shards, with a few held-out documents.
    manifest = bertsmith.build_corpus([text], tokenizer, folder / "corpus", held_out=0.05, workers=1)
    print(f"corpus: {manifest['documents']} documents, {manifest['tokens']} tokens")

    # A model, pre-trained from scratch. For a standard size, omit `config` and pass `size`.
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    config = {"vocab_size": 80, "max_position_embeddings": 64, "initializer_range": 0.1, **shape}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = bertsmith.pretrain(
        folder / "corpus",
        folder / "run",
        config=str(folder / "config.json"),
        objective="mlm+nsp",
        rows_per_step=64,
        precision="fp32",
        max_length=24,
        steps=steps,
        evaluate_every=steps,
    )
    scores = {name: value for name, value in result.metrics.items() if name.startswith("held_out_")}
    print(f"held out: masked-LM loss {scores['held_out_mlm_loss']:.2f} nats", end=" ")
    print(f"(frequencies alone: {scores['held_out_unigram_entropy']:.2f}),", end=" ")
    print(f"next sentence {scores['held_out_nsp_accuracy']:.0%} right")

    # Predictions come from the model folder, which any tool that reads BERT can load.
    model = bertsmith.load(folder / "run", device="cpu")
    best = []
    for gap, filled in zip(GAPS, model.fill(GAPS, top=3), strict=True):
        guesses = filled[0]
        best.append(guesses[0].piece)
        print(f"{gap}  ->  {', '.join(f'{guess.piece} {guess.probability:.0%}' for guess in guesses)}")
    continuations = model.next_sentence([(NEXT[0], second) for second in NEXT[1:]])
    for continuation in continuations:
        print(f"{NEXT[0]}  then  {continuation.text}  {continuation.probability:.0%}")
    return scores, best, [continuation.probability for continuation in continuations]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, bertsmith.quiet():
        main(Path(temporary))
