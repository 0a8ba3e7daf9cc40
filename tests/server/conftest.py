"""Models to serve; without the packages of the extra, all tests here are skipped."""

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from bertsmith import Model
from server.models import load_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A loaded tiny model of each kind."""
    return load_models(tmp_path_factory.mktemp("models"))
