"""A pre-training that continues on a text, as a part of another run: of an adaptation, or before a fine-tuning.

::

    FOLDER/corpus/   the token shards of the text
    FOLDER/run/      the pre-training run, see `training.pretraining.run`
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.storage.locks import LOCK_FILE
from bertsmith.training.loop.result import TrainResult
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import SETTINGS_FILE, RunFolder, is_run
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain

EVALUATION_ROWS = 256


def pretrain_on_text(
    folder: Path,
    run: Run,
    build: Callable[[], object],
    settings: Callable[[], Mapping[str, Any]],
    *,
    by_processor: bool = False,
) -> TrainResult:
    """The result of a pre-training that is a part of a run; an interrupted one is resumed.

    If a setting does not allow a single step, or the text is too short, the folder is emptied, because it would only
    block the next attempt; unless the run is resumed.

    Args:
        build: writes the corpus unless it is there; called by rank 0.
    """
    inner = folder / "run"
    try:
        run.on_first_rank(build)
        parts = settings_from_recipe(settings())
        is_resumed = run.has(inner / SETTINGS_FILE)
        return pretrain(folder / "corpus", inner, *parts, resume=is_resumed, by_processor=by_processor)
    except (ConfigError, InputError):
        is_trained = is_run(inner) and RunFolder.open(inner).last_step() is not None
        if folder.is_dir() and not (run.is_resumed or is_trained or run.rank.index):
            for entry in folder.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
                elif entry.name != LOCK_FILE:
                    entry.unlink()
            if folder != run.path:
                folder.rmdir()
        raise
