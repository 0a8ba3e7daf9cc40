"""What the tests of fine-tuning share: a small base model, and a file of labelled texts."""

import json
from pathlib import Path

import pytest

from tasks.task_samples import examples_of, write_base_model
from written_files import file_with


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def mails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"text": example.first, "label": example.label} for example in examples_of("single", 40)]
    return file_with(tmp_path_factory.mktemp("data") / "mails.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
