"""What each part of pre-training is worth: the ablations of the paper, and a few more, at a small scale.

    python benchmarks/ablations.py --text DIR --data DIR --work WORK [--questions tasks,positions] [--tokens 400000]
    python benchmarks/ablations.py --text DIR --data DIR --work WORK --tokens 4000000 --questions \
        directions,pairs,readers,replacement,sizes      # the claims of the paper; docs/what-pre-training-buys.md
    python benchmarks/ablations.py --work WORK      # in seconds, on text and tasks that need no files

A question changes one thing between its arms: the objective, positions, the first word vectors, the shape, the order
of the sentences, or what is trained on the labels. All arms have the same vocabulary, text, tokens of pre-training and
recipe, and all arms of a task have the same labelled examples, another sample for each seed. A seed is one of
pre-training, too: each of the first PRETRAININGS seeds has a model of its own, apart from arms in ONCE. The questions
are in `ablation_questions.py`. Tests draw seeds and rows, see `ablation_differences.py`.

Models and cells (a task, an arm and a seed) are kept in WORK as `bertsmith compare` keeps them; what is there is not
made again, so that an interrupted call resumes. After every task, the cells are written to OUT.jsonl, the means, ranges
and paired tests to OUT.json, and the picture of OUT.svg is drawn.

All of it runs on a GPU with --device cuda. The questions are answered seed by seed, so that the first results are there
early.

DIR of --data has `glue`, `nli`, `cls` and `squad` (any part as train-v1.1-partial.json) in their official formats, and
for `directions` and `pairs` `ner`, `nltk`, `wsd`, `blimp` and `dialogue`, see `ablation_words.py`.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from ablation_arms import LENGTH, TOKENS_PER_STEP
from ablation_material import MORE, Material, require_same, sick_table
from ablation_questions import (
    EPOCHS,
    INTERMEDIATE,
    INTERMEDIATE_OF,
    MODELS,
    ORDER,
    QUESTIONS,
    arms_of,
    tasks_of,
)
from ablation_report import summary, write_results
from harness import RESULTS, machine, machine_label

import bertsmith
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.predictors.perplexity import Perplexity
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.comparison.bench import Bench, Budget
from bertsmith.recipes.comparison.corpus_text import CorpusText
from bertsmith.recipes.comparison.fitting import all_cells, fit_all
from bertsmith.recipes.comparison.sources import MADE_FILE, SEED
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData

CHAPTERS = 20  # whose perplexity is computed


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Answers the questions, and returns the summary."""
    options = _options(arguments)
    torch.set_num_threads(1)
    work = options.work
    material = Material(folder=work / "text", data=options.data, dev=options.dev, length=LENGTH)
    names = ("tokens", "size", "pieces", "dev", "most")
    require_same(
        work, {name: getattr(options, name) for name in names} | {"text": [path.name for path in options.text]}
    )
    material.prepare(options.text, options.pieces)
    results = Results(options, material)
    for name in options.questions:
        if name == INTERMEDIATE:
            if options.data is not None:
                intermediate(options, material)
            continue
        tasks = [task for task in tasks_of(name, options.data) if not options.tasks or task in options.tasks]
        for seeds in range(1, options.seeds + 1):
            for task in tasks:
                labels = options.labels * MORE.get(task, (1, 1))[0]
                fit_all(bench_of(task, material, options), work / "tasks" / task, arms_of(name, task), [labels], seeds)
            results.write()
    return results.write(drawn=True)


@functools.cache
def read_task(material: Material, name: str) -> tuple[TaskSpec, TaskData]:
    """A task and its examples, read once."""
    return material.task(name)


def bench_of(task: str, material: Material, options: argparse.Namespace) -> Bench:
    """A task with its examples, text and budget."""
    spec, data = read_task(material, task)
    return Bench(
        spec=spec,
        data=data,
        text=CorpusText([material.folder / "ordered"], material.folder),
        budget=Budget(tokens=options.tokens, size=options.size),
        models=options.work / "models",
        device=options.device,
    )


def intermediate(options: argparse.Namespace, material: Material) -> None:
    """Runs `pretraining_gain.py` with a labelled task in between, for the models of two objectives."""
    for name in INTERMEDIATE_OF:
        folder = options.work / f"intermediate-{name}"
        if folder.with_suffix(".json").is_file():
            continue
        bench = bench_of("nli", material, options)
        base = MODELS[name].make(bench, SEED, options.work)
        script = Path(__file__).with_name("pretraining_gain.py")
        data = options.data
        command = [sys.executable, str(script), "--model", base.path, "--no-scratch", "--out", str(folder)]
        command += ["--intermediate", f"nli:classification={data}/nli/mnli_train.tsv,{data}/nli/mnli_val.tsv"]
        command += ["--task", f"sick:classification={sick_table(material, 'train')},{sick_table(material, 'trial')}"]
        command += ["--labels", "100,300", "--most", str(options.most), "--dev", str(options.dev)]
        command += ["--rate", "1e-3", "--epochs", "2"]
        subprocess.run([*command, "--seeds", str(options.seeds)], check=True)


class Results:
    """What has been measured, as the files of the result."""

    def __init__(self, options: argparse.Namespace, material: Material) -> None:
        self.options, self.material, self.machine = options, material, machine()

    def write(self, *, drawn: bool = False) -> dict[str, Any]:
        """The summary of all cells that are there; rewrites the files.

        Args:
            drawn: also draws the picture.
        """
        options, folder, models = self.options, self.options.work / "tasks", self.options.work / "models"
        label = f"{machine_label(self.machine)}_torch-{torch.__version__}"
        path = options.out or RESULTS / f"ablations_{label}"
        tasks = {path.name: list(all_cells(path)) for path in sorted(folder.glob("*"))}
        questions = {
            name: {
                "title": question.title,
                "arms": {task: tuple(arms_of(name, task)) for task in tasks_of(name, options.data)},
            }
            for name, question in QUESTIONS.items()
        }
        gains = {name: self._gain(name) for name in INTERMEDIATE_OF}
        asked = ("tokens", "size", "pieces", "labels", "dev", "seeds", "most")
        values = {
            "machine": self.machine,
            "settings": {
                **{name: getattr(options, name) for name in asked},
                **EPOCHS,
                "length": LENGTH,
                "step": TOKENS_PER_STEP,
            },
            "text": self._text(),
            "models": {
                path.parent.name: self._model(path.parent.name) for path in sorted(models.glob(f"*/{MADE_FILE}"))
            },
            "questions": summary(
                questions, tasks, folder, lambda task: read_task(self.material, task)[0], self.material.is_piece
            ),
            INTERMEDIATE: {name: gain for name, gain in gains.items() if gain},
        }
        write_results(path, values, tasks, drawn=drawn)
        return values

    def _made(self, name: str) -> Path:
        return Path(self.options.work) / "models" / name / MADE_FILE

    def _model(self, name: str) -> dict[str, Any]:
        """What a pre-training cost, and its scores on its own held-out rows."""
        made = read_json(self._made(name))
        folder = load_any(str(self._made(name).parent))
        scores = {key: round(float(value), 4) for key, value in (folder.metadata.scores or {}).items()}
        parameters = sum(tensor.numel() for tensor in folder.tensors.values())
        costs = {key: made[key] for key in ("tokens", "processor_seconds", "seconds")}
        if folder.config.is_causal:
            scores["aside_perplexity"] = self._perplexity(self._made(name).parent)
        return {**costs, "steps": folder.metadata.steps, "parameters": parameters, "scores": scores}

    def _perplexity(self, model: Path) -> float:
        """The perplexity of a piece in chapters that no model reads, each as one text; computed once."""
        path = model.with_suffix(".aside.json")
        if not path.is_file():
            chapters = [" ".join(sentences) for sentences in self.material.sentences()[:CHAPTERS]]
            perplexities = bertsmith.load(model, device=self.options.device).perplexity(chapters)
            write_json(path, Perplexity.of_all(perplexities).to_dict())
        return round(float(read_json(path)["perplexity"]), 2)

    def _gain(self, name: str) -> Mapping[str, Any]:
        path = Path(self.options.work) / f"intermediate-{name}.json"
        return read_json(path)["tasks"] if path.is_file() else {}

    def _text(self) -> dict[str, Any]:
        manifest = read_json(Path(self.options.work) / "text" / "ordered" / "corpus.json")
        return {name: manifest[name] for name in ("documents", "sentences", "tokens", "held_out")}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--work", type=Path, required=True, help="the folder of models and cells")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="[the docstrings of this package]")
    parser.add_argument("--data", type=Path, help="labelled files [tasks that are made from the text]")
    parser.add_argument("--questions", default=",".join(ORDER), help="names, in the order in which they are answered")
    parser.add_argument("--tasks", help="only these tasks, of those of the questions [all]")
    parser.add_argument("--tokens", type=int, help="of each pre-training [400000; without --text 20000]")
    parser.add_argument("--pieces", type=int, help="of the vocabulary [4000; without --text 1000]")
    parser.add_argument("--labels", type=int, help="training examples of a task [1000; without --data 60]")
    parser.add_argument("--dev", type=int, help="most dev examples of a task [500; without --data 60]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--most", type=int, default=3000, help="examples of the intermediate task")
    parser.add_argument("--out", type=Path, help="the result, without its ending [in results/]")
    options = parser.parse_args(arguments)
    options.tokens = options.tokens or (400_000 if options.text else 20_000)
    options.pieces = options.pieces or (4000 if options.text else 1000)
    options.labels = options.labels or (60 if options.data is None else 1000)
    options.dev = options.dev or (60 if options.data is None else 500)
    options.questions = options.questions.split(",")
    options.tasks = options.tasks.split(",") if options.tasks else []
    if unknown := set(options.questions) - set(ORDER):
        parser.error(f"expected questions among {', '.join(ORDER)}; found {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    print(json.dumps(main()["questions"], indent=1))
