"""Training a memory network: from a file of stories to a run folder.

::

    RUN/model/               the model with the best held-out loss
    RUN/start-1/ ...         with several starts, one training each
"""

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import torch

from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import digest_file
from bertsmith.models.encoders.memory_network import MemoryNetwork, MemoryNetworkConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.memory.model_folder import TASK, rows_of_answers, words_of, write_memory_model
from bertsmith.recipes.memory.request import TrainMemoryRequest
from bertsmith.recipes.memory.settings import MemorySettings
from bertsmith.recipes.memory.stories import (
    NO_ANSWER,
    UNKNOWN_ANSWER,
    EncodedStories,
    encode_stories,
    read_stories,
    split_stories,
)
from bertsmith.recipes.memory.workload import MemoryTraining
from bertsmith.training.loop.evaluations import PREFIX
from bertsmith.training.loop.loop import TrainResult, train
from bertsmith.training.loop.result import written
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import is_run
from bertsmith.training.loop.run_request import request_of_run
from bertsmith.training.loop.settings import TrainSettings

_PATHS = ("stories", "dev")  # inputs given by path, whose content is compared by digest


@takes(TrainMemoryRequest)
def train_memory(request: TrainMemoryRequest) -> TrainResult:
    """The result of training a memory network; OUT/model is the model, which `answer_from_memory` reads.

    Of several starts it is the result of the one with the best held-out loss.

    Raises:
        BertsmithError: a file, a setting or the run folder is invalid; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    if request.stories is None:
        request = request_of_run(
            TrainMemoryRequest, request.out, name="stories", task=TASK, command="memory train", settings=MemorySettings
        )
    assert request.stories is not None, "a run has them"
    settings, path, dev_path = request.part(MemorySettings), Path(request.stories), path_or_none(request.dev)
    Rank.from_environment().require_alone("a memory network")
    device = choose(settings.device, "fp32").torch_device
    with Run.open(request.out, resume=request.resume) as run:
        stories = read_stories(path, settings.encoding)
        if dev_path is None:
            stories, dev = split_stories(stories, settings.dev_share, request.seed)
        else:
            dev = read_stories(dev_path, settings.encoding)
        tokenizer = words_of(stories, settings.minimum_count)
        answers = sorted({story.answer for story in stories if story.answer is not None})
        rows = rows_of_answers(answers, tokenizer)
        encoded = encode_stories(stories, tokenizer, answers, settings.facts, str(path))
        held_out = encode_stories(dev, tokenizer, answers, settings.facts, str(dev_path or path))
        training = _selecting(request.training(len(stories)), request, has_answers=bool(answers))
        _require_support(encoded, settings, has_answers=bool(answers))
        _require_scores(held_out.answers, held_out.support, has_answers=bool(answers))
        config = MemoryNetworkConfig(
            vocab_size=len(tokenizer.vocabulary),
            phrases=sum(row >= len(tokenizer.vocabulary) for row in rows),
            hidden_size=settings.width,
            num_hidden_layers=settings.hops,
            max_position_embeddings=settings.facts,
            position_weights=settings.position_weights,
            temporal=settings.temporal,
        )

        record = {
            "task": TASK,
            "stories": str(path),
            "dev": None if dev_path is None else str(dev_path),
            "model": to_dict(config),
            "run": to_dict(settings),
            "train": to_dict(training),
            "runtime": {"device": device.type},
        }
        digests = {"stories": digest_file(path)} | ({} if dev_path is None else {"dev": digest_file(dev_path)})
        run.start(record, digests, may_change=_PATHS, request=request)

        def started(number: int) -> tuple[MemoryTraining, TrainSettings]:
            """The training with that start, counted from 0."""
            seeded = dataclasses.replace(training, seed=training.seed + number)
            model = MemoryNetwork(config, rows, seed=seeded.seed)
            with torch.no_grad():
                for table in model.words:
                    table[sorted(tokenizer.vocabulary.special_ids)] = 0  # an unknown word adds nothing to a text
            return MemoryTraining(model, encoded, held_out, device, settings, seeded.seed), seeded

        def write_model(workload: MemoryTraining, number: int, folder: Path, result: TrainResult) -> None:
            metadata = ModelMetadata(
                task=TASK,
                labels=tuple(answers),
                trained_on=digests,
                training={"softmax_from_step": workload.softmax_from, "start": number + 1, "starts": settings.starts},
                steps=result.kept_step,
                tokens=result.kept_tokens,
                scores=result.scores,
            )
            write_memory_model(folder, workload.model, tokenizer, metadata, len(held_out))

        if settings.starts == 1:
            workload, seeded = started(0)
            return train(workload, seeded, run.folder, write_model=functools.partial(write_model, workload, 0))
        best: tuple[int, TrainResult, MemoryTraining] | None = None
        best_value = -math.inf
        assert training.keep_best is not None, "checked by the request"
        name = f"{PREFIX}{training.keep_best}"
        for number in range(settings.starts):
            workload, seeded = started(number)
            folder = run.path / f"start-{number + 1}"
            own_record: dict[str, Any] = {**record, "train": to_dict(seeded)}
            with Run.open(folder, resume=is_run(folder), rank=run.rank) as part:
                part.start(own_record, digests, may_change=_PATHS)
                result = train(workload, seeded, part.folder, label=f"start {number + 1} of {settings.starts}")
            tell(f"start {number + 1}: {training.keep_best} {result.scores[name]:.4f}")
            sign = 1 if workload.higher_is_better()[training.keep_best] else -1
            value = sign * result.scores[name] if math.isfinite(result.scores[name]) else -math.inf
            if best is None or value > best_value:
                best, best_value = (number, result, workload), value
        assert best is not None, "there is a start"
        number, result, workload = best
        written(functools.partial(write_model, workload, number), run.folder.model, result)
        return result


def _selecting(training: TrainSettings, request: TrainMemoryRequest, *, has_answers: bool) -> TrainSettings:
    """The settings; without answers, the loss of the supporting facts selects the model unless something else does."""
    if has_answers or "keep_best" in request.given:
        return training
    return dataclasses.replace(training, keep_best="support_loss")


def _require_scores(answers: Any, support: Any, *, has_answers: bool) -> None:
    """Checks that something is known about the dev stories."""
    require(
        bool((answers >= 0).any()) if has_answers else any(support),
        expected="dev stories with answers of the training stories" if has_answers else "dev stories with support",
        found="none",
        fix="give --dev other stories",
    )
    if has_answers and (unknown := int((answers == UNKNOWN_ANSWER).sum())):
        warn(f"{counted(unknown, 'held-out question')} with an answer that no training story has; counted as wrong")


def _require_support(stories: EncodedStories, settings: MemorySettings, *, has_answers: bool) -> None:
    """Checks that there are supporting facts to learn if they have a weight; warns of questions that teach nothing."""
    if settings.support_weight or not has_answers:
        require(
            any(stories.support),
            expected="stories with supporting facts among those that are read",
            found="none",
            fix="add them, or leave --support-weight out" if has_answers else "add them, or raise --facts",
        )
    elif has_answers and (unused := int((stories.answers == NO_ANSWER).sum())):
        warn(f"{counted(unused, 'question')} without an answer; without --support-weight nothing is learned from them")
