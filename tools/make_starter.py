"""Makes the starter model of the package: vocabulary, corpus, pre-training, weights in half precision.

    python tools/make_starter.py TEXT ... --work DIR --minutes 40

The texts must be free to redistribute. The starter in the package was made from 100 English novels of Project
Gutenberg, the State of the Union addresses and the inaugural addresses of presidents of the United States, and two
English translations of Genesis, all in the public domain. The work folder keeps the corpus and the run; what is there
already is used, and an interrupted run resumes. `benchmarks/finetuning_recipes.py --model starter` measures it.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from bertsmith.checkpoints.hub import STARTER
from bertsmith.checkpoints.huggingface import write_model_folder
from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.corpus.build import CorpusSettings, build_corpus
from bertsmith.documents.words import count_files
from bertsmith.files import write_text
from bertsmith.library.training import pretrain
from bertsmith.text.normalize import TextRules
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.vocabularies.learn import learn_vocabulary

VOCABULARY_SIZE = 12_000
HEADER = ["license: apache-2.0", "language: en"]
UNKNOWN = "## What this card does not know"
ABOUT = """## Texts

100 English novels of Project Gutenberg (up to 1937), the State of the Union addresses from 1945 to 2006, the inaugural
addresses of presidents of the United States, and two English translations of Genesis: 81.6 MB, all in the public
domain. Made by `tools/make_starter.py` of Bertsmith in 40 minutes on one core.

## What it is for

A start for fine-tuning, vectors and trying things out where no larger model can be had. It knows the English of novels
and speeches, little of the present day, and nothing of other languages. Its texts are old, and so are their views of
people: do not let it judge any. A model that read thousands of times as much is better wherever you can get one;
docs/starter.md in the repository has measured scores."""
PACKAGE = Path(__file__).parent.parent / "src" / "bertsmith" / STARTER


def train(texts: Sequence[Path], work: Path, minutes: float) -> Path:
    """The model folder of a pre-training run on the texts, in the work folder."""
    corpus, run = work / "corpus", work / "run"
    if not corpus.is_dir():
        counts = count_files(texts, TextRules())
        tokenizer = WordPieceTokenizer(learn_vocabulary(counts.total, VOCABULARY_SIZE), TextRules())
        build_corpus(texts, tokenizer, corpus, settings=CorpusSettings(held_out=0.01))
    if not (run / "model").is_dir():
        pretrain(corpus, run, size="mini", minutes=minutes, resume=(run / "settings.json").exists())
    return run / "model"


def write_half(source: Path, out: Path) -> ModelFolder:
    """Writes the model of a folder with parameters in fp16, two bytes each; they are read as fp32."""
    model = load_any(source)
    write_model_folder(
        out,
        config=model.config,
        tensors={name: tensor.to(torch.float16) for name, tensor in model.tensors.items()},
        tokenizer=model.tokenizer,
        metadata=model.metadata,
        replace=True,
    )
    card = (out / "README.md").read_text(encoding="utf-8")
    card = card.replace("---\n", "\n".join(["---", *HEADER, ""]), 1)
    write_text(out / "README.md", card[: card.index(UNKNOWN)] + ABOUT + "\n")
    return load_any(out)


def main() -> None:
    """Makes the starter and replaces the one in the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", metavar="TEXT", type=Path, nargs="+", help="files or folders of text")
    parser.add_argument("--work", metavar="DIR", type=Path, required=True, help="folder for the corpus and the run")
    parser.add_argument("--minutes", type=float, default=40.0, help="minutes of pre-training")
    parser.add_argument("--out", metavar="DIR", type=Path, default=PACKAGE, help="the model folder")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    model = train(options.texts, options.work, options.minutes)
    write_half(model, options.out)
    size = sum(path.stat().st_size for path in options.out.iterdir())
    print(f"{options.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
