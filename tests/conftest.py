"""Common setup of all tests: no network, fixed seeds, one thread per worker, no progress output."""

import os
import tempfile

# Set before anything imports torch or the hub client: both read the environment once, at import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Where transformers copies the code of folders, so that no test leaves any, or sees that of another.
_MODULES = tempfile.TemporaryDirectory(prefix="bertsmith-test-modules-")
os.environ["HF_MODULES_CACHE"] = _MODULES.name
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

import logging
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from bertsmith.base.core.progress import quiet

# Failures must be reproducible, and a slow machine must not cause any.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture(autouse=True)
def _same_start_for_every_test() -> None:
    """Seeds the global generators, which only third-party libraries use."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)  # that of the CPU alone, at once
    if "bertsmith.text.tokenizers.tokenizer" in sys.modules:  # what a process says once, each test hears
        sys.modules["bertsmith.text.tokenizers.tokenizer"]._said_of_casing().clear()
        sys.modules["bertsmith.text.tokenizers.tokenizer"]._said_of_specials().clear()


@pytest.fixture(autouse=True)
def _no_progress() -> Iterator[None]:
    with quiet():
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real texts, vocabularies and checkpoints for optional tests."""
    folder = os.environ.get("BERTSMITH_DATA")
    if not folder:
        pytest.skip("needs real data that is not in the repository; set BERTSMITH_DATA to its folder")
    return Path(folder)


@pytest.fixture
def quiet_transformers() -> Iterator[None]:
    """Silences the warnings and progress bars of transformers, because here every warning is an error."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logger = logging.getLogger("transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logger.handlers.clear()
