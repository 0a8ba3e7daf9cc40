"""Small base models, made in seconds, for the examples that fine-tune a model or look inside one.

They replace a model pre-trained on a large corpus. The examples that use them accept the folder of such a model with
`--model`; only then do their numbers say something about English.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from toy import corpus_of, pretrain_small

import bertsmith

SHAPE = {"hidden_size": 64, "intermediate_size": 256, "initializer_range": 0.1}


def base_of_presets(names: Sequence[str], folder: Path, steps: int = 300) -> str:
    """A run folder with 500 pieces and a masked language model, both learned from the example texts of presets."""
    tasks = [bertsmith.read_task(name, None, None)[1] for name in names]
    in_order = [sorted((*data.train, *data.dev), key=lambda example: int(example.id)) for data in tasks]
    texts = [example.first for examples in in_order for example in examples]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "texts.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    tokenizer = bertsmith.learn_vocabulary([file], 500).tokenizer
    documents = [bertsmith.Document(f"text {number}", [text]) for number, text in enumerate(texts)]
    bertsmith.build_corpus(documents, tokenizer, folder / "corpus", held_out=0.1, workers=1)
    return _pretrained(folder / "corpus", folder / "base", "mlm", steps)


def base_of_language(documents: list[list[str]], folder: Path, steps: int = 600, objective: str = "mlm+nsp") -> str:
    """A run folder with whole words as pieces, trained on masked words and, by default, next-sentence prediction."""
    return _pretrained(corpus_of(documents, folder / "corpus"), folder / "base", objective, steps)


def _pretrained(corpus: Path, out: Path, objective: str, steps: int) -> str:
    pretrain_small(corpus, out, steps, SHAPE, objective=objective, max_length=40, learning_rate=1e-3)
    return str(out)


def options(about: str | None) -> argparse.ArgumentParser:
    """A parser with the options shared by the examples; an example may add its own."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("--model", metavar="DIR", help="a pre-trained model [default: train a small one]")
    return parser
