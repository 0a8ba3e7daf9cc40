"""Tiny models of every kind to serve, and one that a test controls."""

import dataclasses
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bertsmith import Model, build_index, load
from bertsmith.app.library.loading import Served, load_indexes
from bertsmith.base.core.errors import InputError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from tasks.architecture_samples import write_base_model as write_architecture
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, write_base_model

KINDS = {
    "reviews": "single",
    "pairs": "pair",
    "paraphrases": "on the pair",
    "duplicates": "on texts apart",
    "topics": "several labels",
    "long": "windows",
    "moods": "on the mean",
    "stars": "number",
    "endings": "choice",
    "replies": "replies by vectors",
    "names": "tags",
    "answers": "answer",
    "doubts": "answer or none",
    "summaries": "text to write",
    "extracts": "sentences of a text",
    "pronouns": "pronoun",
}


def write_models(folder: Path) -> dict[str, Path]:
    """An untrained model of each kind of task, one with pre-training heads, "novels", "sentences", and a GPT."""
    paths = {name: folder / name for name in KINDS}
    for name, kind in KINDS.items():
        spec = dataclasses.replace(SPECS[kind], settings=dataclasses.replace(SPECS[kind].settings, max_question=9))
        if spec.multi_label:
            spec = dataclasses.replace(spec, thresholds=tuple(np.linspace(0.3, 0.7, len(spec.labels)).tolist()))
        write_task_model(paths[name], spec)
    others = {"novels": Path(write_base_model(folder / "novels")), "sentences": _write_sentences(folder)}
    stories = Path(write_architecture(folder / "stories", "openai-gpt"))
    entailment = dataclasses.replace(SPECS["on the pair"], labels=("entailment", "neutral", "contradiction"))
    return {**paths, **others, "stories": stories, "entails": write_task_model(folder / "entails", entailment)}


def write_task_model(path: Path, spec: TaskSpec) -> Path:
    """The folder of an untrained model of a task."""
    task = task_for(spec)
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    trained = (task.head.part, *(["pooler"] if task.head.pooled else []))
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=4)
    save_pretrained(path, model, TOKENIZER, ModelMetadata.from_dict(info), trained=trained)
    return path


def _write_sentences(folder: Path) -> Path:
    """A sentence-transformers folder with a non-default value for every setting."""
    path = folder / "sentences"
    head = task_for(SPECS["single"]).head
    save_pretrained(
        path, EncoderForTask(new_encoder(CONFIG), head, seed=5), TOKENIZER, ModelMetadata.from_dict({}), trained=()
    )
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    said: dict[str, Any] = {
        "modules.json": [
            {"idx": n, "path": module, "type": f"sentence_transformers.models.{modules[module]}"}
            for n, module in enumerate(modules)
        ],
        "1_Pooling/config.json": {"pooling_mode_cls_token": True},
        "sentence_bert_config.json": {"max_seq_length": 20},
        "config_sentence_transformers.json": {"prompts": {"query": "who ? "}, "default_prompt_name": "query"},
    }
    for name, values in said.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(json.dumps(values), encoding="utf-8")
    return path


def load_index(folder: Path, model: Path) -> dict[str, Served]:
    """An index of a few texts, "repairs", which is searched and changed."""
    texts = folder / "texts.txt"
    texts.write_text("The gate was broken.\nAnna mended it.\nBert was in Rome.\n", encoding="utf-8")
    build_index(texts, folder / "repairs", model=model)
    return load_indexes([str(folder / "repairs")], {}, is_changed=True, device="cpu")


def load_models(folder: Path) -> dict[str, Model]:
    """Those models, loaded."""
    return {name: load(path, device="cpu") for name, path in write_models(folder).items()}


class FakeModel:
    """A model whose vectors are the lengths of the texts; it runs only while allowed, and records its inputs.

    Each text is a pass through its encoder. A text "wrong" is a mistake of the user, a text "broken" one of ours.

    Attributes:
        let: it works while this is set.
        one_by_one: it clears `let` itself with each batch.
        began: is released with each batch.
    """

    task, labels, width, max_length, embed_length = None, (), 1, 8, 8
    abilities, shows_attention, shows_pieces, device = ("embed",), True, True, "cpu"
    pair, max_question, is_sparse = None, 0, False
    tokenizer = ()

    def __init__(self) -> None:
        self.one_by_one = False
        self.let = threading.Event()
        self.let.set()
        self.began = threading.Semaphore(0)
        self.calls: list[list[str]] = []
        self.passes: list[str] = []
        encoder = torch.nn.Identity()
        encoder.register_forward_hook(lambda module, inputs, outputs: self.passes.append(outputs))
        self.encoder = SimpleNamespace(runtime=SimpleNamespace(device="cpu"), model=encoder)
        self.hooked = (encoder,)

    def read(
        self, items: Sequence[str], ability: str, *, prompt: str | None = None
    ) -> tuple[Sequence[str], list[list[int]]]:
        assert ability == "embed"
        return items, [[len(text)] for text in items]

    def reads_at_most(self, ability: str) -> int:
        return self.embed_length

    def compute(self, ability: str, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        self.began.release()
        assert self.let.wait(120), "somebody lets the model work"
        if self.one_by_one:
            self.let.clear()
        if "wrong" in texts:
            raise InputError(expected="a right text", found="a wrong one", fix="write another")
        if "broken" in texts:
            raise ZeroDivisionError("a mistake of ours")
        for text in texts:
            self.encoder.model(text)
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    def as_model(self) -> Any:
        """Itself, for functions that want a `Model`."""
        return self
