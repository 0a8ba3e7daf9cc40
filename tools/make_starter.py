"""Makes the starter model of the package: vocabulary, corpus, pre-training, and a folder with weights in half precision.

    python tools/make_starter.py TEXT ... --work DIR --minutes 45

The texts must be free to redistribute. The starter in the package was made from 100 English novels of Project
Gutenberg, the State of the Union addresses, the inaugural addresses of the presidents of the United States, and two
English translations of Genesis, all in the public domain. The work folder keeps the vocabulary, the corpus and the run,
and an interrupted run is resumed. `benchmarks/starter.py` measures the result.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from bertsmith.checkpoints.starter import STARTER
from bertsmith.corpus.build import CorpusSettings, build_corpus
from bertsmith.corpus.words import count_files
from bertsmith.library.training import pretrain
from bertsmith.text.normalize import TextRules
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.vocabularies.learn import learn_vocabulary

VOCABULARY_SIZE = 12_000


def train(texts: Sequence[Path], work: Path, minutes: float) -> Path:
    """The model folder of the run, made from the texts in the work folder; what is there already is used."""
    corpus, run = work / "corpus", work / "run"
    if not (corpus / "corpus.json").is_file():
        counts = count_files(texts, TextRules())
        tokenizer = WordPieceTokenizer(learn_vocabulary(counts.total, VOCABULARY_SIZE), TextRules())
        build_corpus(texts, tokenizer, corpus, settings=CorpusSettings(held_out=0.01))
    if not (run / "model").is_dir():
        pretrain(corpus, run, size="mini", minutes=minutes, resume=(run / "settings.json").exists())
    return run / "model"


def main() -> None:
    """Makes the starter and replaces the one in the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", metavar="TEXT", type=Path, nargs="+", help="files or folders of text")
    parser.add_argument("--work", metavar="DIR", type=Path, required=True, help="folder for vocabulary, corpus and run")
    parser.add_argument("--minutes", type=float, default=45.0, help="minutes of pre-training")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    model = train(options.texts, options.work, options.minutes)
    print(model)


if __name__ == "__main__":
    main()
