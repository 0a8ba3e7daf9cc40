"""What each part of pre-training is worth: the ablations of the paper, and a few more, at a small scale.

    python benchmarks/ablations.py --text DIR --data DIR --work WORK [--questions tasks,positions] [--tokens 400000]
    python benchmarks/ablations.py --work WORK      # in seconds, on text and tasks that need no files

A question changes one thing between its arms: the objective, positions, the first word vectors, the shape, the order
of the sentences, or what is trained on the labels. All arms have the same vocabulary, text, tokens of pre-training and
recipe, and all arms of a task have the same labelled examples, another sample for each seed. Each model is pre-trained
once; the seeds are those of what is trained on labels.

Models and cells (a task, an arm and a seed) are kept in WORK as `bertsmith compare` keeps them; what is there is not
made again, so that an interrupted call resumes. After every task, the cells are written to OUT.jsonl, the means, ranges
and paired tests to OUT.json, and the picture of OUT.svg is drawn.

DIR of --data has `glue`, `nli`, `cls` and `squad` (any part as train-v1.1-partial.json) in their official formats.
"""

import argparse
import dataclasses
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
from ablation_arms import LENGTH, TOKENS_PER_STEP, Arm, CountedWords
from ablation_material import FROM_TEXT, Material, require_same, sick_table
from ablation_report import summary, write_results
from harness import RESULTS, machine, machine_label

import bertsmith
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.predictors.perplexity import Perplexity
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.comparison.bench import Bench, Budget
from bertsmith.recipes.comparison.corpus_text import CorpusText
from bertsmith.recipes.comparison.fitting import all_cells, fit_all
from bertsmith.recipes.comparison.networks import Untrained
from bertsmith.recipes.comparison.sources import MADE_FILE, SEED, Source
from bertsmith.recipes.comparison.systems import FineTuned, FrozenMean, System
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData

CHAPTERS = 20  # whose perplexity is computed
EPOCHS = {"epochs": 2.0}  # of fine-tuning, in all arms; the recipe would take 3.56 for 1,000 examples
LONGER = {"epochs": 8.0}  # with a BiLSTM on top, which still answers all examples alike after two
BILSTM = {**LONGER, "reads": "bilstm", "freeze": "nothing", "bilstm_cells": 64}
WHOLE_ROWS = (("contiguous", True),)  # as GPT reads books: rows go on over the ends of sentences
MLM, BOTH = Arm(name="mlm"), Arm(name="mlm+nsp", objective="mlm+nsp")
CAUSAL = Arm(name="left-to-right", objective="left-to-right")
MODELS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        BOTH,
        MLM,
        CAUSAL,
        Arm(name="sinusoidal", changes=(("positions", "sinusoidal"),)),
        Arm(name="no-positions", changes=(("positions", "none"),)),
        Arm(name="narrow", shape=(2, 64)),
        Arm(name="deep", shape=(4, 128)),
        Arm(name="shuffled", objective="mlm+nsp", text="shuffled"),
        Arm(name="left-to-right-books", objective="left-to-right", changes=WHOLE_ROWS),
        Arm(name="left-to-right-shuffled", objective="left-to-right", changes=WHOLE_ROWS, text="shuffled"),
        *(Arm(name=f"{one.name}-quarter", objective=one.objective, share=0.25) for one in (BOTH, MLM, CAUSAL)),
    )
}


def _tuned(about: str, source: Source) -> FineTuned:
    return FineTuned(about=about, source=source, settings=EPOCHS)


FROZEN = "mean of frozen vectors, a linear model on top"
ARMS: dict[str, System] = {
    **{name: _tuned(f"pre-trained: {name}", arm) for name, arm in MODELS.items()},
    "left-to-right-longer": FineTuned(about="fine-tuned for as long as the next", source=CAUSAL, settings=LONGER),
    "left-to-right+bilstm": FineTuned(about="a BiLSTM on top, trained with the rest", source=CAUSAL, settings=BILSTM),
    "untrained": _tuned("random parameters", Untrained(like=MLM)),
    "word-vectors": _tuned("random parameters, word vectors from counting", CountedWords(like=MLM)),
    "mlm frozen": FrozenMean(about=FROZEN, source=MLM),
    "left-to-right frozen": FrozenMean(about=FROZEN, source=CAUSAL),
    "untrained frozen": FrozenMean(about=FROZEN, source=Untrained(like=MLM)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is compared.

    Attributes:
        title: the question in words.
        arms: names of ARMS; the first is what the others are tested against.
        tasks: names of TASKS.
    """

    title: str
    arms: Sequence[str]
    tasks: Sequence[str]


QUESTIONS: dict[str, Question] = {
    "tasks": Question(
        title="the objective",
        arms=("mlm+nsp", "mlm", "left-to-right"),
        tasks=("mrpc", "sst-2", "trec", "nli"),
    ),
    "positions": Question(
        title="positions",
        arms=("mlm", "sinusoidal", "no-positions"),
        tasks=("word-order", "topic", "cola", "sst-2", "trec"),
    ),
    "words": Question(
        title="word vectors as all that was learned", arms=("word-vectors", "untrained", "mlm"), tasks=("sst-2", "trec")
    ),
    "size": Question(title="size at equal tokens", arms=("mlm", "narrow", "deep"), tasks=("sst-2", "trec")),
    "books": Question(title="sentences in order", arms=("mlm+nsp", "shuffled"), tasks=("next-sentence", "nli")),
    "stretches": Question(
        title="sentences in order, read from left to right",
        arms=("left-to-right-books", "left-to-right-shuffled"),
        tasks=("next-sentence", "nli"),
    ),
    "features": Question(
        title="frozen features",
        arms=("mlm", "mlm frozen", "left-to-right", "left-to-right frozen", "untrained", "untrained frozen"),
        tasks=("sst-2", "trec"),
    ),
    "tokens": Question(
        title="the objective at a quarter of the tokens",
        arms=("mlm+nsp-quarter", "mlm-quarter", "left-to-right-quarter"),
        tasks=("sst-2", "trec"),
    ),
    "bilstm": Question(
        title="a BiLSTM on a left-to-right model",
        arms=("left-to-right-longer", "left-to-right+bilstm"),
        tasks=("sst-2", "mrpc", "trec", "nli"),
    ),
    "answers": Question(
        title="the objective, for answers in a text", arms=("mlm", "left-to-right", "untrained"), tasks=("squad",)
    ),
}
INTERMEDIATE, INTERMEDIATE_OF = "intermediate", ("mlm+nsp",)
# In this order, as far as time allows.
ORDER = (
    "tasks",
    "positions",
    "words",
    INTERMEDIATE,
    "size",
    "books",
    "stretches",
    "features",
    "tokens",
    "bilstm",
    "answers",
)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Answers the questions, and returns the summary."""
    options = _options(arguments)
    torch.set_num_threads(1)
    work = options.work
    material = Material(folder=work / "text", data=options.data, dev=options.dev, length=LENGTH)
    names = ("tokens", "size", "pieces", "dev", "most")
    require_same(work, {name: getattr(options, name) for name in names} | {"text": [one.name for one in options.text]})
    material.prepare(options.text, options.pieces)
    results = Results(options, material)
    for name in options.questions:
        if name == INTERMEDIATE:
            if options.data is not None:
                intermediate(options, material)
            continue
        for task in tasks_of(name, options.data):
            if options.tasks and task not in options.tasks:
                continue
            bench = bench_of(task, material, options)
            arms = {arm: ARMS[arm] for arm in QUESTIONS[name].arms}
            fit_all(bench, work / "tasks" / task, arms, [options.labels], options.seeds)
        results.write()
    return results.write(drawn=True)


def tasks_of(question: str, data: Path | None) -> Sequence[str]:
    """The tasks of a question; without data, those that are made from text."""
    return QUESTIONS[question].tasks if data is not None else FROM_TEXT


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
        device="cpu",
    )


def intermediate(options: argparse.Namespace, material: Material) -> None:
    """Runs `pretraining_gain.py` with a labelled task in between, for the models of two objectives."""
    for name in INTERMEDIATE_OF:
        place = options.work / f"intermediate-{name}"
        if place.with_suffix(".json").is_file():
            continue
        bench = bench_of("nli", material, options)
        base = MODELS[name].make(bench, SEED, options.work)
        script = Path(__file__).with_name("pretraining_gain.py")
        data = options.data
        command = [sys.executable, str(script), "--model", base.path, "--no-scratch", "--out", str(place)]
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
        options, folder = self.options, self.options.work / "tasks"
        label = f"{machine_label(self.machine)}_torch-{torch.__version__}"
        place = options.out or RESULTS / f"ablations_{label}"
        tasks = {path.name: list(all_cells(path)) for path in sorted(folder.glob("*"))}
        questions = {
            name: {"title": one.title, "arms": one.arms, "tasks": tasks_of(name, options.data)}
            for name, one in QUESTIONS.items()
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
            "models": {name: self._model(name) for name in MODELS if self._made(name).is_file()},
            "questions": summary(questions, tasks, folder, lambda task: read_task(self.material, task)[0]),
            INTERMEDIATE: {name: one for name, one in gains.items() if one},
        }
        write_results(place, values, tasks, drawn=drawn)
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
        place = model.with_suffix(".aside.json")
        if not place.is_file():
            chapters = [" ".join(sentences) for sentences in self.material.sentences()[:CHAPTERS]]
            found = Perplexity.of_all(bertsmith.load(model, device="cpu").perplexity(chapters))
            write_json(place, found.to_dict())
        return round(float(read_json(place)["perplexity"]), 2)

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
    parser.add_argument("--most", type=int, default=3000, help="examples of the intermediate task")
    parser.add_argument("--out", type=Path, help="the result, without its ending [in results/]")
    found = parser.parse_args(arguments)
    found.tokens = found.tokens or (400_000 if found.text else 20_000)
    found.pieces = found.pieces or (4000 if found.text else 1000)
    found.labels = found.labels or (60 if found.data is None else 1000)
    found.dev = found.dev or (60 if found.data is None else 500)
    found.questions = found.questions.split(",")
    found.tasks = found.tasks.split(",") if found.tasks else []
    if unknown := set(found.questions) - set(ORDER):
        parser.error(f"expected questions among {', '.join(ORDER)}; found {', '.join(sorted(unknown))}")
    return found


if __name__ == "__main__":
    print(json.dumps(main()["questions"], indent=1))
