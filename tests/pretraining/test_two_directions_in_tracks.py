"""ELMo on contiguous text: both directions carry their state, and resumed = straight."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import read_json_lines
from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.elmo import ElmoConfig
from bertsmith.models.parts.batch import Batch
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.language_model import LanguageModeling
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from pretraining.test_run import VOCABULARY, corpus  # noqa: F401 - a fixture
from training.interruptions import assert_same_files, killed_at_evaluation
from training.whole_steps import whole_step

OBJECTIVE = "forward+backward-language-model"
TRACKS, WINDOW = 3, 12


def work(
    folder: Path, *, micro_tokens: int = 4096, dropout: float = 0.0, sampled_pieces: int | None = None
) -> LanguageModeling:
    source = Corpus.open(folder)
    config = ElmoConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=8,
        intermediate_size=6,
        num_filters=64,
        hidden_dropout_prob=dropout,
        cell_clip=0.5,
    )
    return LanguageModeling(
        untrained(config, 1, VOCABULARY),
        source,
        source.held_out(),
        source.vocabulary,
        PretrainingDataSettings(objective=OBJECTIVE, max_length=WINDOW),
        choose("cpu", "fp32"),
        PretrainingRunSettings(
            size="tiny", rows_per_step=TRACKS, micro_tokens=micro_tokens, sampled_pieces=sampled_pieces
        ),
        unigram=source.token_counts(),
    )


def test_steps_have_the_loss_of_reading_the_tracks_at_once_from_either_side(corpus):  # noqa: F811
    workload = work(corpus)
    result = [whole_step(workload, step)[:2] for step in range(3)]
    assert workload.windows.start(3) == 3 * WINDOW
    total, expected = 3 * WINDOW, np.zeros((3, 2))
    counts = np.zeros((3, 2))
    for way, (text, logits_of) in enumerate(zip(workload.texts, ("mlm_logits", "backward_logits"), strict=True)):
        tokens, targets = text.window(0, total)
        for track in range(TRACKS):
            ids, every = tokens[track], torch.arange(total)
            with torch.no_grad():
                output = workload.model(Batch.from_flat(ids, 0 * ids, [total]), masked=every, backward=every)
            gold = torch.from_numpy(targets[track].copy())
            nll = F.cross_entropy(getattr(output, logits_of), gold, reduction="none").numpy()
            nll = np.where(text.is_open(targets[track]), nll, 0.0)
            steps = np.split(nll, 3)[:: -1 if way else 1]  # the backward track begins at the end of its text
            expected[:, way] += [losses.sum() for losses in steps]
            counts[:, way] += [(step > 0).sum() for step in steps]
    for step, (loss, sums) in enumerate(result):
        assert [sums["forward_nll"], sums["backward_nll"]] == pytest.approx(expected[step].tolist(), abs=1e-3)
        assert [sums["forward_count"], sums["backward_count"]] == counts[step].tolist()
        assert loss == pytest.approx((expected[step] / counts[step]).sum(), abs=1e-4)


@pytest.mark.parametrize("sampled", [None, 6])
def test_the_loss_and_the_state_do_not_depend_on_how_a_step_is_split(corpus, sampled):  # noqa: F811
    whole, split = (work(corpus, micro_tokens=size, dropout=0.3, sampled_pieces=sampled) for size in (4096, 1))
    assert [len(workload.plan(0, 0, 1).micro_batches) for workload in (whole, split)] == [2, 2 * TRACKS]
    for step in range(2):
        assert whole_step(whole, step)[0] == pytest.approx(whole_step(split, step)[0], rel=1e-5)
    state = whole.carried(2)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        f"{kind}.{layer}": (2 * TRACKS, width) for layer in range(2) for kind, width in (("hidden", 4), ("cells", 6))
    }
    for name, tensor in state.items():
        torch.testing.assert_close(split.carried(2)[name], tensor)
        assert tensor.any(dim=1).all(), "all tracks of both directions have a state"


def test_a_sample_changes_the_loss_of_a_step_but_not_held_out_figures(corpus):  # noqa: F811
    plain, sampled = work(corpus), work(corpus, sampled_pieces=6)
    assert abs(whole_step(plain, 0)[0] - whole_step(sampled, 0)[0]) > 1e-2
    figures = sampled.evaluate(sampled.model)
    assert figures == plain.evaluate(plain.model)
    assert figures["forward_perplexity"] == pytest.approx(np.exp(figures["forward_loss"]))
    assert figures["loss"] == pytest.approx(figures["forward_loss"] + figures["backward_loss"])


def test_the_state_of_one_direction_alone_is_refused(corpus):  # noqa: F811
    with pytest.raises(CheckpointError, match="the state of 6 tracks in the checkpoint of step 4"):
        work(corpus).carry(4, {"hidden.0": torch.zeros(TRACKS, 4)})


def settings(**changes: object) -> tuple:
    values = {"size": "tiny", "architecture": "elmo", "objective": OBJECTIVE, "rows_per_step": TRACKS}
    values |= {"max_length": WINDOW, "dropout": 0.1, "device": "cpu", "precision": "fp32", "log_every": 1}
    return settings_from_recipe({**values, **changes})


def test_a_resumed_run_is_the_straight_run_bit_for_bit(corpus, tmp_path):  # noqa: F811
    options = {"steps": 7, "save_every": 2, "evaluate_every": 5, "sampled_pieces": 20}
    pretrain(corpus, tmp_path / "straight", *settings(**options))
    with killed_at_evaluation(5):
        pretrain(corpus, tmp_path / "broken", *settings(**options))
    assert (tmp_path / "broken/checkpoints/step-00000004/carried.safetensors").is_file()
    pretrain(corpus, tmp_path / "broken", *settings(**options), resume=True)
    last = "checkpoints/step-00000007"
    names = ("model.safetensors", "optimizer.safetensors", "carried.safetensors")
    assert_same_files(tmp_path / "straight" / last, tmp_path / "broken" / last, *names)


def test_both_directions_learn(corpus, tmp_path):  # noqa: F811
    pretrain(corpus, tmp_path / "run", *settings(steps=40, dropout=0.0, initialization="random"))
    lines = [line for line in read_json_lines(tmp_path / "run/metrics.jsonl") if line["kind"] == "evaluation"]
    for way in ("forward", "backward"):
        name = f"held_out_{way}_perplexity"
        assert lines[-1][name] < 0.8 * lines[0][name]
    folder = load_any(tmp_path / "run/model")
    assert (folder.metadata.objective, folder.parts) == (OBJECTIVE, ("mlm",))


def test_it_is_refused_for_several_processes_and_for_other_architectures(corpus, tmp_path, monkeypatch):  # noqa: F811
    for architecture in ("bert", "awd-lstm"):
        with pytest.raises(ConfigError, match="an objective for the architecture"):
            pretrain(corpus, tmp_path / "run", *settings(steps=1, architecture=architecture))
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"one process for forward\+backward-language-model"):
        pretrain(corpus, tmp_path / "run", *settings(steps=1))


def test_the_recipe_gives_windows_and_tracks_only_with_this_objective():
    options = {"size": "tiny", "architecture": "elmo", "steps": 5}
    run, data, _ = settings_from_recipe({**options, "objective": OBJECTIVE})
    assert (run.rows_per_step, data.max_length) == (32, 70)
    run, data, training = settings_from_recipe({**options, "objective": OBJECTIVE, "recipe": "2018"})
    assert (run.rows_per_step, data.max_length, training.clip_norm) == (128, 20, 10.0)
    assert settings_from_recipe({**options, "recipe": "2018"})[0].rows_per_step == 256
    assert settings_from_recipe(options)[1].objective == "forward+backward"
    assert settings_from_recipe(options)[1].max_length == 128
