"""Other settings of the answers of a model than those that are stored with it, such as a wider search."""

import copy
import dataclasses
from typing import Any

from bertsmith.base.core.settings import from_dict, require, require_number, to_dict
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import TaskSettings


def answering(predictor: Predictor, **settings: Any) -> Predictor:
    """A predictor with other settings of its answers, such as `beam`; those that are not given stay as they are stored.

    Raises:
        ConfigError: the answers of such a model do not have this setting, or its value is out of range.
    """
    if not settings:
        return predictor
    spec, known = predictor.task.spec, predictor.task.settings_of_answers
    for name in settings:
        require(
            name in known,
            expected=f"a model whose answers have the setting {name}",
            found=f"one of {spec.title}",
            fix=f"its settings are {', '.join(known)}" if known else "leave it out",
        )
    changed = from_dict(TaskSettings, {**to_dict(spec.settings), **settings}, f"the settings of {spec.title}")
    if "max_target_length" in settings:  # the first position is that of [CLS]
        require_number("max_target_length", changed.max_target_length, most=predictor.engine.max_tokens - 1)
    result = copy.copy(predictor)
    result.task = task_for(dataclasses.replace(spec, settings=changed))
    return result
