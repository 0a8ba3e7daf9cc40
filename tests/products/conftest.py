"""Which products the tests of this folder compute, whatever the processor is best at."""

import pytest

from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.products import fast_path, packed_linear


@pytest.fixture(autouse=True)
def only_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plain weights for few tokens."""
    monkeypatch.setattr(packed_linear, "_is_faster_plain", lambda weight: False)


@pytest.fixture
def plain_for_few(monkeypatch: pytest.MonkeyPatch, only_packed: None) -> None:
    """Plain weights for as many as eight tokens."""
    if not Runtime(device="cpu", precision="fp32").is_packed:
        pytest.skip("no packed products in fp32 here")
    monkeypatch.setattr(packed_linear, "_is_faster_plain", lambda weight: weight.dtype.itemsize == 4)
    for module in (packed_linear, fast_path):
        monkeypatch.setattr(module, "prefers_plain", lambda x: x.shape[0] <= 8)
