"""Models to export, and files of labelled examples to test them on."""

import json
from pathlib import Path

import pytest

from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.tasks.datasets.examples import (
    NEITHER,
    DocumentExample,
    Example,
    MentionExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from tasks.task_samples import CONFIG, SPECS, TOKENIZER


def write_task(path: Path, kind: str, config: EncoderConfig = CONFIG, tokenizer: Tokenizer = TOKENIZER) -> Path:
    spec = SPECS[kind]
    head = task_for(spec).head
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    trained = (head.part, *(["pooler"] if head.pooled else []))
    save_pretrained(
        path,
        EncoderForTask(new_encoder(config), head, seed=4),
        tokenizer,
        ModelMetadata.from_dict(info),
        trained=trained,
    )
    return path


def alike(first: object, second: object) -> None:
    """Asserts that two values from JSON are equal, numbers to the tolerance of a batch."""
    if isinstance(first, dict) and isinstance(second, dict):
        assert first.keys() == second.keys()
        for key in first:
            alike(first[key], second[key])
    elif isinstance(first, list) and isinstance(second, list):
        assert len(first) == len(second)
        for of_first, of_second in zip(first, second, strict=True):
            alike(of_first, of_second)
    elif isinstance(first, float) or isinstance(second, float):
        assert first == pytest.approx(second, abs=BATCH_TOLERANCE)
    else:
        assert first == second


def write_data(path: Path, examples: list[Example]) -> Path:
    """A file of labelled examples in the format of their task."""
    lines: list[str] = []
    if isinstance(examples[0], TextExample):
        lines = [
            "text\tlabel",
            *(f"{example.first}\t{example.label}" for example in examples if isinstance(example, TextExample)),
        ]
    for example in examples:
        if isinstance(example, TaggedExample):
            lines += [*(f"{word} {tag}" for word, tag in zip(example.words, example.tags or (), strict=True)), ""]
        if isinstance(example, DocumentExample):
            lines.append(json.dumps({"source": example.texts, "target": example.targets[0]}))
        if isinstance(example, MentionExample):
            record = {"text": example.text, "pronoun": example.pronoun, "candidates": example.candidates}
            lines.append(json.dumps({**record, "answer": None if example.label == NEITHER else example.label}))
    questions = [
        {
            "context": example.context,
            "qas": [
                {
                    "id": example.id,
                    "question": example.question,
                    "answers": [{"text": answer.text, "answer_start": answer.start} for answer in example.answers],
                }
            ],
        }
        for example in examples
        if isinstance(example, QuestionExample)
    ]
    content = {"version": "1.1", "data": [{"title": "samples", "paragraphs": questions}]}
    path.write_text(json.dumps(content) if questions else "\n".join(lines) + "\n", encoding="utf-8")
    return path
