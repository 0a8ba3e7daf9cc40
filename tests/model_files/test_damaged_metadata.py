"""What `bertsmith.json` says about a task is refused in one line where no answer could be made from it."""

import json
import math
import re
from pathlib import Path

import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.tasks.specs.kinds import task_for
from tasks.task_samples import CONFIG, SPECS, TOKENIZER

SPEC = SPECS["single"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier."""
    path = tmp_path_factory.mktemp("model") / "model"
    model = EncoderForTask(TransformerEncoder(CONFIG), task_for(SPEC).head)
    about = ModelMetadata(task=SPEC.kind, labels=SPEC.labels, spec=SPEC.to_dict())
    save_pretrained(path, model, TOKENIZER, about, trained=("pooler", "classifier"))
    return path


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"temperature": 0}, "a temperature above 0; found 0"),
        ({"temperature": math.nan}, "a temperature above 0; found nan"),
        ({"temperature": -1.0}, "a temperature above 0"),
        ({"temperature": math.inf}, "a temperature above 0"),
        ({"threshold": math.nan}, "thresholds from 0 to 1; found nan"),
        ({"threshold": -0.5}, "thresholds from 0 to 1"),
        ({"threshold": 2}, "thresholds from 0 to 1"),
        ({"thresholds": [0.5]}, "one threshold for each"),
        ({"thresholds": ["a"] * len(SPEC.labels)}, "thresholds from 0 to 1; found 'a'"),
        ({"parents": ["x"]}, "one parent for each"),
        ({"labels": ["a"] * len(SPEC.labels)}, "different names .* 'a' twice"),
        ({"labels": list(range(len(SPEC.labels)))}, "texts as the labels .* found 0"),
        ({"labels": [*SPEC.labels, "one more"]}, "rows"),
    ],
)
def test_a_value_without_a_meaning_is_refused_in_one_line(folder, tmp_path, changes, named):
    for item in folder.iterdir():
        (tmp_path / item.name).write_bytes(item.read_bytes())
    file = tmp_path / "bertsmith.json"
    values = json.loads(file.read_text())
    values["spec"] |= changes
    del values["digests"]
    file.write_text(json.dumps(values))
    with pytest.raises(BertsmithError) as caught:
        bertsmith.load(tmp_path)
    assert re.search(named, str(caught.value)) is not None, str(caught.value)
    assert "\x1b" not in str(caught.value)
