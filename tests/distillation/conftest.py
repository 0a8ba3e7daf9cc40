"""What all tests of distillation share."""

import pytest

from bertsmith.recipes.distillation import report


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are timed, but none is repeated until its time is exact: no test looks at a time."""
    monkeypatch.setattr(report, "LEAST_SECONDS", 0.0)
