"""What every test runs under: no network, fixed seeds, one thread a worker, no progress on the screen."""

import os

# Set before anything imports torch or the hub: both read their environment once, at import.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from bertsmith.progress import quiet

# A failing example must fail again on the next run, and a slow machine is not a failure.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture(autouse=True)
def _same_start_for_every_test() -> None:
    """Seeds the global generators, which only other people's libraries draw from."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def _no_progress() -> Iterator[None]:
    with quiet():
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real texts, vocabularies and checkpoints for the optional checks."""
    folder = os.environ.get("BERTSMITH_DATA")
    if not folder:
        pytest.skip("needs real data that is not in the repository; set BERTSMITH_DATA to its folder")
    return Path(folder)
