"""Language models on contiguous text: tracks in document order, carried state, resumed = straight, bad input."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import bertsmith
from bertsmith.base.core.errors import CheckpointError, ConfigError, CorpusError
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import read_json, read_json_lines, write_json
from bertsmith.models.checkpoints.assembly import load_for_task, load_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.awd_lstm import AwdLstmConfig
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.memory import Memory
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.loop.guard import StopRequest
from bertsmith.training.loop.lanes import Lanes
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.pretraining.language_model import LanguageModeling
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.token_tracks import TokenTracks, Windows
from pretraining.test_run import VOCABULARY, corpus  # noqa: F401 - a fixture
from training.whole_steps import whole_step

CLS, SEP = VOCABULARY.cls_id, VOCABULARY.sep_id
TINY = {"vocab_size": len(VOCABULARY), "hidden_size": 16, "intermediate_size": 24}
TRACKS, WINDOW = 3, 12


class Texts:
    """Documents of counted tokens, so that their order can be seen."""

    def __init__(self, *lengths: int) -> None:
        self.document_lengths = np.array(lengths)
        self.num_documents = len(lengths)
        self._starts = 100 + np.cumsum(lengths) - lengths

    def document_tokens(self, index: int) -> np.ndarray:
        return np.arange(self._starts[index], self._starts[index] + self.document_lengths[index], dtype=np.uint16)


def stream(texts: Texts) -> list[int]:
    return [
        token
        for number, length in enumerate(texts.document_lengths)
        if length
        for token in (CLS, *texts.document_tokens(number).tolist(), SEP)
    ]


def test_tracks_read_the_documents_in_order_and_each_token_once_per_pass():
    texts = Texts(5, 0, 7, 3, 9)
    whole = stream(texts)
    tracks = TokenTracks(texts, VOCABULARY, tracks=4, shortest=1)
    assert tracks.num_tokens == len(whole) == 32
    read, position = [], 0
    for length in (3, 4, 1):
        tokens, targets = tracks.window(position, length)
        read.append(tokens)
        position += length
        assert targets[:, :-1].tolist() == tokens[:, 1:].tolist()
    joined = np.concatenate(read, axis=1)
    assert joined.ravel().tolist() == whole
    after, _ = tracks.window(8, 8)
    assert after.ravel().tolist() == whole[8:] + whole[:8]


def test_backward_tracks_read_the_text_from_its_end_and_predict_the_piece_before():
    texts = Texts(5, 7, 4)
    whole = stream(texts)
    tracks = TokenTracks(texts, VOCABULARY, tracks=2, shortest=1, backward=True)
    first, targets = tracks.window(0, 4)
    assert first[0].tolist() == whole[-4:]
    assert targets[0].tolist() == whole[-5:-1]
    second, _ = tracks.window(4, 7)
    assert [*second[0].tolist(), *first[0].tolist()] == whole[-11:]
    assert second[1].tolist() == whole[:7]
    assert tracks.is_open(np.array([CLS, SEP, 100])).tolist() == [True, False, True]


def test_windows_vary_around_the_base_and_its_half_and_add_up():
    windows = Windows(base=70, seed=1)
    lengths = np.array([windows.length(step) for step in range(2000)])
    half = lengths < 50
    assert 0.03 < half.mean() < 0.07
    assert lengths[~half].mean() == pytest.approx(69.5, abs=0.5)
    assert lengths[half].mean() == pytest.approx(34.5, abs=2)
    assert lengths[~half].std() == pytest.approx(5, abs=0.5)
    assert windows.start(1500) == lengths[:1500].sum()
    assert Windows(base=6, seed=1).length(3) >= 5
    assert [Windows(base=70, seed=1).length(step) for step in (1999, 0)] == [lengths[1999], lengths[0]]


def test_a_corpus_that_is_too_short_for_the_tracks_is_refused():
    with pytest.raises(CorpusError, match="at least 400 tokens, 10 for each of 40 tracks"):
        TokenTracks(Texts(20, 30), VOCABULARY, tracks=40, shortest=10)


def work(
    corpus: Path,  # noqa: F811
    *,
    micro_tokens: int = 4096,
    dropout: float = 0.0,
    tracks: int = TRACKS,
    **changes: object,
) -> LanguageModeling:
    source = Corpus.open(corpus)
    rates = AwdLstmConfig.dropout_changes(dropout)
    backward = "backward" in str(changes.get("objective"))
    config = AwdLstmConfig(**{**TINY, **rates, "direction": "backward" if backward else "forward"})
    run = {"activation_penalty": 0.0, "change_penalty": 0.0}
    for name in list(run):
        run[name] = changes.pop(name, run[name])
    return LanguageModeling(
        untrained(config, 1),
        source,
        source.held_out(),
        source.vocabulary,
        PretrainingDataSettings(**{"objective": "language-model", "max_length": WINDOW, **changes}),
        choose("cpu", "fp32"),
        PretrainingRunSettings(size="tiny", rows_per_step=tracks, micro_tokens=micro_tokens, **run),
    )


@pytest.mark.parametrize("objective", ["language-model", "backward-language-model"])
def test_steps_with_carried_state_have_the_loss_of_reading_the_tracks_at_once(corpus, objective):  # noqa: F811
    workload = work(corpus, objective=objective)
    model, tracks = workload.model, workload.texts[0]
    losses = [whole_step(workload, step)[0] for step in range(3)]
    total = workload.windows.start(3)
    tokens, targets = tracks.window(0, total)
    backward = objective.startswith("backward")
    for track in range(TRACKS):
        ids = tokens[track]
        whole = Batch.from_flat(ids, np.zeros_like(ids), [total])
        logits = model(whole, masked=torch.arange(total)).mlm_logits
        nll = F.cross_entropy(logits, torch.from_numpy(targets[track].copy()), reduction="none")
        nll = nll.detach()
        nll = nll.flip(0) if backward else nll
        is_open = tracks.is_open(targets[track][::-1] if backward else targets[track])
        for step in range(3):
            span = slice(workload.windows.start(step), workload.windows.start(step + 1))
            count = workload.plan(step, 0, 1).micro_batches[0].step_predictions
            losses[step] -= float((nll[span] * torch.from_numpy(is_open[span].copy())).sum()) / count
    assert losses == pytest.approx([0, 0, 0], abs=1e-4)


def test_the_loss_and_the_state_do_not_depend_on_how_a_step_is_split(corpus):  # noqa: F811
    whole, split = (
        work(corpus, micro_tokens=size, dropout=0.3, activation_penalty=2.0, change_penalty=1.0) for size in (4096, 1)
    )
    for step in range(2):
        assert len(split.plan(step, 0, 1).micro_batches) == TRACKS
        assert whole_step(split, step)[0] == pytest.approx(whole_step(whole, step)[0], rel=1e-5)
    for name, tensor in whole.carried(2).items():
        torch.testing.assert_close(split.carried(2)[name], tensor)


def test_the_penalties_are_means_over_the_step(corpus):  # noqa: F811
    plain, ar, tar = (work(corpus, **changes) for changes in ({}, {"activation_penalty": 2.0}, {"change_penalty": 1.0}))
    for workload in (plain, ar, tar):
        with torch.no_grad():
            for parameter in workload.model.parameters():
                parameter.mul_(5)
    base = whole_step(plain, 0)[0]
    (batch,) = plain.plan(0, 0, 1).micro_batches
    states = plain.model(batch.batch, memory=Memory()).hidden.detach().view(TRACKS, -1, 16)
    assert whole_step(ar, 0)[0] - base == pytest.approx(2 * float(states.square().mean()), rel=1e-3)
    assert whole_step(tar, 0)[0] - base == pytest.approx(float(states.diff(dim=1).square().mean()), rel=1e-3)


def test_a_state_that_is_not_finite_is_reset(corpus):  # noqa: F811
    workload = work(corpus)
    whole_step(workload, 0)
    poisoned = {name: tensor.clone() for name, tensor in workload.carried(1).items()}
    for tensor in poisoned.values():
        tensor[1] = torch.nan
    workload.carry(1, poisoned)
    whole_step(workload, 1)
    assert all(tensor.isfinite().all() for tensor in workload.carried(2).values())
    assert all(not tensor[1].any() and tensor[0].any() for tensor in workload.carried(2).values())


def test_a_checkpoint_without_its_state_is_refused(corpus):  # noqa: F811
    workload = work(corpus)
    with pytest.raises(CheckpointError, match="the state of 3 tracks in the checkpoint of step 4; found none"):
        workload.carry(4, {})
    with pytest.raises(CheckpointError, match="that of another run"):
        workload.carry(4, {"hidden.0": torch.zeros(2, 24)})


def test_rates_follow_the_length_of_the_window_and_the_height_of_the_layer(corpus):  # noqa: F811
    workload = work(corpus)
    assert workload.step_rate(0) == workload.windows.length(0) / WINDOW
    workload.run = dataclasses.replace(workload.run, layer_decay=0.5)
    factors = {
        "mlm.bias": 1.0,
        "bert.layers.2.weight_hh_l0": 1.0,
        "bert.layers.0.bias_ih_l0": 0.25,
        "bert.embeddings.word.weight": 0.125,
    }
    assert {name: workload.rate_factor(name) for name in factors} == factors


def settings(**changes: object) -> tuple:
    values = {
        "size": "tiny",
        "architecture": "awd-lstm",
        "rows_per_step": TRACKS,
        "max_length": WINDOW,
        "dropout": 0.3,
        "device": "cpu",
        "precision": "fp32",
        "log_every": 1,
        "save_every": 2,
        **changes,
    }
    return settings_from_recipe({name: value for name, value in values.items() if value is not None})


def last(run: Path, step: int) -> dict[str, bytes]:
    folder = run / "checkpoints" / f"step-{step:08d}"
    return {name: (folder / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer", "carried")}


def without_times(run: Path) -> list[dict]:
    times = ("seconds", "tokens_per_second", "time_left")
    return [{k: v for k, v in line.items() if k not in times} for line in read_json_lines(run / "metrics.jsonl")]


def test_a_run_killed_between_steps_and_resumed_is_the_straight_run(corpus, tmp_path):  # noqa: F811
    pretrain(corpus, tmp_path / "straight", *settings(steps=8))
    program = (
        "import os, sys, time\n"
        "from bertsmith.training.pretraining import run\n"
        "from bertsmith.training.pretraining.language_model import LanguageModeling\n"
        "from pretraining.test_language_model import settings\n"
        "loss = LanguageModeling.loss\n"
        "def dying(self, model, batch):\n"
        "    if batch.step == 5: os.kill(os.getpid(), 9)\n"
        "    return loss(self, model, batch)\n"
        "LanguageModeling.loss = dying\n"
        "run.pretrain(sys.argv[1], sys.argv[2], *settings(steps=8))\n"
    )
    places = (Path(bertsmith.__file__).parents[1], Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(
        [sys.executable, "-c", program, str(corpus), str(tmp_path / "run")],
        check=False,
        capture_output=True,
        env=environment,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert (tmp_path / "run/checkpoints/step-00000004/carried.safetensors").is_file()
    pretrain(corpus, tmp_path / "run", *settings(steps=8), resume=True)
    assert last(tmp_path / "run", 8) == last(tmp_path / "straight", 8)
    assert without_times(tmp_path / "run") == without_times(tmp_path / "straight")


def test_a_budget_in_minutes_begins_with_an_empty_state(corpus, tmp_path):  # noqa: F811
    result = pretrain(corpus, tmp_path / "timed", *settings(minutes=0.1, save_every=1, keep_checkpoints=1000))
    resolved = RunFolder.open(tmp_path / "timed").resolved  # on a busy machine, the run may get fewer steps later
    counted = settings(
        steps=resolved["steps"], replanned=resolved.get("replanned"), save_every=1, keep_checkpoints=1000
    )
    assert pretrain(corpus, tmp_path / "counted", *counted).steps == result.steps
    assert last(tmp_path / "timed", 1) == last(tmp_path / "counted", 1)


@pytest.mark.parametrize("objective", ["language-model", "backward-language-model"])
def test_a_model_learns_and_is_saved_with_its_direction(corpus, tmp_path, objective):  # noqa: F811
    result = pretrain(
        corpus, tmp_path / "run", *settings(steps=60, objective=objective, dropout=0.0, initialization="random")
    )
    lines = [line for line in read_json_lines(tmp_path / "run/metrics.jsonl") if line["kind"] == "evaluation"]
    assert lines[-1]["held_out_lm_perplexity"] < 0.8 * lines[0]["held_out_lm_perplexity"]
    assert lines[-1]["held_out_lm_perplexity"] == pytest.approx(np.exp(lines[-1]["held_out_loss"]))
    folder = load_any(tmp_path / "run/model")
    assert folder.config.reads_backward == objective.startswith("backward")
    assert folder.metadata.objective == objective
    loaded = load_pretrained(folder).model.state_dict()
    trained = load_file(tmp_path / f"run/checkpoints/step-{result.steps:08d}/model.safetensors")
    assert all(torch.equal(loaded[name], trained[name]) for name in trained if "pooler" not in name)
    assert "library_name: bertsmith" in (tmp_path / "run/model/README.md").read_text()


def test_a_model_is_continued_with_rates_by_layer_and_slanted_triangles(corpus, tmp_path):  # noqa: F811
    pretrain(corpus, tmp_path / "first", *settings(steps=4))
    run, data, training = settings_from_recipe({"init": str(tmp_path / "first/model"), "steps": 10})
    assert (data.objective, data.max_length, training.schedule) == ("language-model", 70, "slanted_triangular")
    assert run.layer_decay == pytest.approx(1 / 2.6, abs=1e-4)
    again = settings(steps=2, init=str(tmp_path / "first/model"), size=None, architecture=None)
    pretrain(corpus, tmp_path / "second", *again)
    assert read_json(tmp_path / "second/model/bertsmith.json")["continued_from"]
    with pytest.raises(ConfigError, match="reads forward, as the model does"):
        pretrain(
            corpus,
            tmp_path / "third",
            *settings(
                steps=2,
                init=str(tmp_path / "first/model"),
                size=None,
                architecture=None,
                objective="backward-language-model",
            ),
        )


def refused(corpus: Path, out: Path, match: str, **changes: object) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match=match):
        pretrain(corpus, out, *settings(steps=2, **changes))


def test_what_does_not_fit_carried_state_is_refused_in_one_line(corpus, tmp_path, monkeypatch):  # noqa: F811
    out = tmp_path / "run"
    refused(corpus, out, "for BERT, which has no state to carry", architecture=None, objective="language-model")
    refused(corpus, out, "reads from left to right for AWD-LSTM", objective="mlm")
    refused(
        corpus, out, "no change_penalty for an objective that reads rows", objective="left-to-right", change_penalty=1
    )
    refused(corpus, out, "no tokens_per_step for tracks", tokens_per_step=100)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    refused(corpus, out, "one process for language-model")


def test_rows_without_carried_state_train_the_same_architecture(corpus, tmp_path):  # noqa: F811
    data = {"objective": "left-to-right", "max_length": 32}
    pretrain(corpus, tmp_path / "run", *settings(steps=2, **data))
    assert not (tmp_path / "run/checkpoints/step-00000002/carried.safetensors").exists()


def test_parts_of_a_step_side_by_side_give_the_gradients_and_the_state_of_one_after_another(corpus):  # noqa: F811
    def step(*, together: bool) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        workload = work(corpus, tracks=50, dropout=0.3)
        workload.lanes = 2
        trainer = Trainer(workload, TrainSettings(steps=3), Rank(), StopRequest())
        trainer._lanes = Lanes(2) if together else None
        for number in range(2):
            plan = workload.plan(number, 0, 1)
            assert len(plan.micro_batches) == 2
            trainer.apply(trainer.gradient(number, plan), 1e-2)
        return [parameter.detach() for parameter in workload.model.parameters()], dict(workload.carried(2))

    (values, state), (expected, expected_state) = (step(together=together) for together in (True, False))
    assert all(torch.equal(*both) for both in zip(values, expected, strict=True))
    assert state.keys() == expected_state.keys()
    assert all(torch.equal(state[name], expected_state[name]) for name in state)


def test_one_layer_of_a_configuration_starts_a_classifier(corpus, tmp_path):  # noqa: F811
    """Dai and Le (2015): the parameters of a language model of one layer are the first ones of a classifier."""
    config = AwdLstmConfig(**{**TINY, "num_hidden_layers": 1})
    write_json(tmp_path / "config.json", {"model_type": "awd-lstm", **config.to_dict()})
    options = {"config": str(tmp_path / "config.json"), "size": None, "architecture": None, "dropout": None}
    pretrain(corpus, tmp_path / "run", *settings(steps=2, **options))
    folder = load_any(tmp_path / "run/model")
    model = load_for_task(folder, Head(part="classifier", outputs=2, pooled=True, reads="cls"), keep_head=False).model
    trained = load_file(tmp_path / "run/checkpoints/step-00000002/model.safetensors")
    assert torch.equal(model.get_parameter("bert.layers.0.weight_hh_l0"), trained["bert.layers.0.weight_hh_l0"])
    words = Batch.from_flat(np.arange(9), np.zeros(9, np.int64), (4, 5))
    hidden = model.encoder(words)
    torch.testing.assert_close(model(words), model.output_layer(hidden[[3, 8]]))
