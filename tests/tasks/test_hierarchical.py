"""Long texts read as a whole: against a slow version, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import OwnHead, convert, finetune, load
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.layers import sinusoidal_positions
from bertsmith.models.parts.transformer import Pass, TransformerEncoder
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of, write_base_model

CPU = choose("cpu", "fp32")


class Mine(OwnHead):
    """A head of the user's."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden[:, : self.outputs]


def model_of(kind: str) -> EncoderForTask:
    return EncoderForTask(TransformerEncoder(CONFIG, seed=None), task_for(SPECS[kind]).head, seed=4).eval()


def vector(model: EncoderForTask, text: np.ndarray, reads: str) -> torch.Tensor:
    """What is read of one window, [D]."""
    ids = np.array([TOKENIZER.vocabulary.cls_id, *text, TOKENIZER.vocabulary.sep_id])
    hidden = model.encoder(Batch.from_rows([ids]))
    return {"cls": hidden[0], "mean": hidden.mean(0), "pooler": model.encoder.pool(hidden[:1])[0]}[reads]


def windows_of(text: str, settings: TaskSettings) -> list[np.ndarray]:
    """The windows of a text, each but the last one full."""
    ids, room = TOKENIZER.encode(text), settings.max_length - 2
    starts = range(0, max(1, len(ids) - room + settings.stride), settings.stride)
    return [ids[start : start + room] for start in starts]


@pytest.mark.parametrize("kind", ["hierarchical", "hierarchical pair", "hierarchical by a BiLSTM"])
@torch.no_grad()
def test_each_text_is_read_window_by_window_and_then_as_a_whole(kind: str) -> None:
    spec, model, examples = SPECS[kind], model_of(kind), examples_of(kind, 7)
    examples = [*examples, dataclasses.replace(examples[0], first=f"{examples[1].first} {examples[2].first}")]
    features = task_for(spec).encode(examples, TOKENIZER)
    logits = task_logits(model, features, CPU)
    reader = model.get_submodule("reader")
    for number, example in enumerate(examples):
        texts = [text for text in (example.first, example.second) if text is not None]
        cut = [windows_of(text, spec.settings) for text in texts]
        parts = [torch.stack([vector(model, window, spec.reads) for window in text]) for text in cut]
        if spec.pair:
            parts = [part + reader.text[which] for which, part in enumerate(parts)]
        if "BiLSTM" in kind:
            (states,) = parts
            whole = reader.layer(states, (len(states),)).amax(dim=0)
        else:
            placed = torch.cat([part + sinusoidal_positions(len(part), part.shape[1]) for part in parts])
            blank = np.zeros(len(placed), dtype=np.int64)
            shared = Pass(batch=Batch.from_flat(blank, blank, [len(blank)]), noise=None, trace=None, dtype=placed.dtype)
            states = reader.layer(placed, shared, None, "0")
            means = [part.mean(dim=0) for part in states.split([len(part) for part in parts])]
            whole = means[0]
            if spec.pair:
                a, b = means
                whole = torch.cat([a, b, (a - b).abs(), a * b])
        expected = model.output_layer(reader.hidden(whole).tanh())
        first = int(features.first_rows[number])
        rows = logits[first : first + int(features.rows_per_unit[number])]
        np.testing.assert_allclose(rows, np.tile(expected.numpy(), (len(rows), 1)), atol=2e-5)
        assert len(rows) == sum(map(len, cut))


def test_the_order_of_the_windows_matters() -> None:
    task, model = task_for(SPECS["hierarchical"]), model_of("hierarchical")
    halves = "the film was it and plot", "of in one a good it"
    texts = [TextExample(id=str(n), first=" ".join(both), location="") for n, both in enumerate((halves, halves[::-1]))]
    settings = dataclasses.replace(SPECS["hierarchical"].settings, stride=6)
    task = task_for(dataclasses.replace(SPECS["hierarchical"], settings=settings))
    features = task.encode(texts, TOKENIZER)
    assert features.rows_per_unit.tolist() == [2, 2]
    logits = task_logits(model, features, CPU)
    assert abs(logits[0] - logits[2]).max() > 1e-4


def test_a_fine_tuned_model_is_loaded_and_reads_everything(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    rows = [f"{example.first}\t{example.label}" for example in examples_of("hierarchical", 24)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    settings: dict[str, Any] = {"max_length": 8, "stride": 6, "long_text": "hierarchical", "epochs": 1, "seeds": 1}
    finetune(base, "classification", tmp_path / "run", train=tmp_path / "train.tsv", baselines=False, **settings)
    folder = load_any(tmp_path / "run")
    assert folder.metadata.reads == "mean"
    assert "reader" in folder.parts
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "longer texts in windows, whose vectors a layer of its own reads together (hierarchical)" in card
    model = load(tmp_path / "run", device="cpu")
    text = rows[0].split("\t")[0]
    alone, together = model.classify([text]), model.classify([f"{text} {text} the end", text, text])
    assert alone[0].probabilities == pytest.approx(together[1].probabilities, abs=1e-5)
    assert together[1] == together[2]
    with pytest.raises(ConfigError, match='a head of the linear kind, for `to="onnx"`'):
        convert(tmp_path / "run", tmp_path / "onnx", to="onnx")


def test_what_does_not_fit_is_refused() -> None:
    settings = TaskSettings(long_text="hierarchical", max_length=16)
    spec = TaskSpec(kind="classification", name="sentiment", labels=("a", "b"), settings=settings)
    for reads in ("concat", "bilstm"):
        with pytest.raises(ConfigError, match="for a hierarchical long_text"):
            dataclasses.replace(spec, reads=reads)
    with pytest.raises(ConfigError, match="a head of your own that reads one row"):
        Head(part="classifier", outputs=2, pooled=True, windows="transformer", own=Mine)
    both = dataclasses.replace(spec, pair=True, settings=dataclasses.replace(settings, both_orders=True))
    with pytest.raises(ConfigError, match="pairs in one row, for both orders"):
        task_for(both).encode([TextExample(id="1", first="a", second="b", location="")], TOKENIZER)
    for kind, match in (("choice", "keeps each ending in one row"), ("tags", "keeps every word")):
        other = dataclasses.replace(SPECS[kind], settings=settings)
        with pytest.raises(ConfigError, match=match):
            task_for(other).encode(examples_of(kind, 2), TOKENIZER)


def test_the_automatic_recipe_trains_the_layer_from_random(tmp_path: Path) -> None:
    folder = load_any(write_base_model(tmp_path / "base"))
    for long_text, expected in (("hierarchical", ("mean", None)), ("windows", ("probe", "linear"))):
        situation = situation_of(
            "classification", "classification", 100, folder, settings=TaskSettings(long_text=long_text)
        )
        values = resolved("auto", situation, {})
        assert (values["reads"], values.get("start")) == expected
