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

import gc
import html
import logging
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import numpy as np
import pytest

from bertsmith.base.core.progress import quiet
from bertsmith.base.pages import charts

# Failures must be reproducible, and a slow machine must not cause any.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


def pytest_sessionstart() -> None:
    """What is collected lives as long as the process: no search for garbage while it is made, none of it afterwards."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000)  # a test that imports or draws creates thousands of objects, nearly all of which stay
    gc.enable()


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


@pytest.fixture
def drawn_charts() -> None:
    """Requested where charts are to be drawn; in all other tests a chart is the list of what would be drawn."""


@pytest.fixture(autouse=True)
def _listed_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib takes more time than a tiny run has trained. What is listed is as different as the picture would be.

    The tests of reports, of the commands that train, and of the demo draw every chart.
    """
    if "drawn_charts" not in request.fixturenames:
        monkeypatch.setattr(charts, "_svg", listed_svg)


def listed_svg(draw: Callable[[Any], None], x_label: str, y_label: str, *, height: float) -> str:
    """An `<svg>` element with the calls that would draw the chart and the numbers and strings that they get."""
    axes = mock.MagicMock()
    draw(axes)
    kinds = (str, float, int, list, tuple, bool)
    calls = [
        (name, [value for value in arguments if isinstance(value, kinds)], sorted(options.items()))
        for name, arguments, options in axes.mock_calls
    ]
    return f'<svg role="img" viewBox="0 0 1 {height}"><desc>{html.escape(f"{x_label} {y_label} {calls}")}</desc></svg>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; a test that wants it is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    paths = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    program = next(filter(None, paths), None)
    if program is None:
        pytest.skip("needs chromium; none is installed")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


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
