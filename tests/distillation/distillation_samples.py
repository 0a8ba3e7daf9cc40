"""A tiny fine-tuned teacher of each kind of task, its examples as files, and models that are compared."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import safetensors.numpy

from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import SPECS, examples_of, write_base_model

WINDOWS = ("windows", "hierarchical", "hierarchical pair", "hierarchical by a BiLSTM")
KINDS = ("single", "pair", "several labels", "number", "choice", "tags", "answer", "answer or none", *WINDOWS)
QUICK = {"batch_size": 8, "epochs": 2.0, "learning_rate": 1e-3, "precision": "fp32"}
SETTINGS = FinetuningSettings(batch_size=8, epochs=2, precision="fp32", dropout=0.0, baselines=False)


def tensors_of(run: Path) -> dict[str, np.ndarray]:
    """The parameters of the model of a run."""
    return safetensors.numpy.load_file(run / "model" / "model.safetensors")


def assert_same_models(first: Path, second: Path) -> None:
    """The models of two runs are equal to the bit, and hold no projection."""
    ours, others = tensors_of(first), tensors_of(second)
    assert ours.keys() == others.keys()
    assert not any(name.startswith("projection") for name in ours)
    for name, tensor in ours.items():
        assert np.array_equal(tensor, others[name]), name


def write_teacher(path: Path, kind: str, *, epochs: float = 1.0) -> Path:
    """A fine-tuned model of a kind of task, two layers of width 32; also writes the base model next to it."""
    base = write_base_model(path / "base")
    data = TaskData(train=examples_of(kind, 24), dev=examples_of(kind, 8, seed=1))
    settings = dataclasses.replace(SETTINGS, epochs=epochs)
    recipe = RecipeSettings(learning_rate=1e-3, bias_correction=True)
    finetune(base, SPECS[kind], data, path / "teacher", settings, recipe, seeds=1)
    return path / "teacher" / "model"


def write_examples(path: Path, kind: str, count: int, seed: int) -> Path:
    """Labelled examples in a file of the task of `SPECS[kind]`."""
    examples = examples_of(kind, count, seed=seed)
    if kind == "pair":  # as in the official files of MRPC
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        lines += [f"{example.label}\t1\t2\t{example.first}\t{example.second}" for example in examples]
        return _write(path.with_suffix(".tsv"), lines)
    if kind == "tags":
        lines = [
            line for example in examples for line in (*map(" ".join, zip(example.words, example.tags, strict=True)), "")
        ]
        return _write(path.with_suffix(".conll"), lines)
    if kind == "choice":
        lines = [json.dumps({"context": e.context, "endings": list(e.endings), "label": e.label}) for e in examples]
        return _write(path.with_suffix(".jsonl"), lines)
    if kind.startswith("answer"):
        items = []
        for example in examples:
            answers = [dataclasses.asdict(answer) for answer in example.answers]
            answers = [{"text": answer["text"], "answer_start": answer["start"]} for answer in answers]
            question = {
                "id": example.id,
                "question": example.question,
                "answers": answers,
                "is_impossible": example.is_impossible,
            }
            items.append({"title": "", "paragraphs": [{"context": example.context, "qas": [question]}]})
        return _write(path.with_suffix(".json"), [json.dumps({"version": "2.0", "data": items})])
    lines = []
    for example in examples:
        label = list(example.label) if isinstance(example.label, tuple) else example.label
        second = {} if example.second is None else {"pair": example.second}
        labels = {"labels" if kind == "several labels" else "label": label}
        lines.append(json.dumps({"text": example.first, **second, **labels}))
    return _write(path.with_suffix(".jsonl"), lines)


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
