"""The server answers in bf16 and int8 as the library does for each text alone, to the stated tolerance."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith.base.machine.runtime import LOW_PRECISION_TOLERANCE
from inference.test_mixes import KINDS, loaded, probabilities, texts, unit_vectors
from server.asgi import replies_to


@pytest.mark.parametrize(("precision", "native", "fixed"), KINDS[1:])
def test_requests_that_are_merged_are_answered_as_each_text_alone(
    precision: str, native: tuple[str, ...], fixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(tmp_path, precision, native, fixed, monkeypatch)
    asked = [text for text in texts() if text]
    groups = [asked[start : start + 3] for start in range(0, len(asked), 3)]
    classes = [("/predict", {"texts": group}) for group in groups]
    vectors = [("/v1/embeddings", {"model": "model", "input": group}) for group in groups]
    replies = replies_to({"model": model}, *classes, *vectors, batch_tokens=128)
    assert [reply.status for reply in replies] == [200] * len(replies)
    classes, vectors = replies[: len(groups)], replies[len(groups) :]
    shares = [
        list(prediction["probabilities"].values()) for reply in classes for prediction in reply.json["predictions"]
    ]
    alone = np.concatenate([probabilities(model, [text]) for text in asked])
    np.testing.assert_allclose(shares, alone, rtol=0, atol=LOW_PRECISION_TOLERANCE)
    served = np.array([item["embedding"] for reply in vectors for item in reply.json["data"]])
    served /= np.linalg.norm(served, axis=1, keepdims=True)
    alone = np.concatenate([unit_vectors(model, [text]) for text in asked])
    np.testing.assert_allclose(served, alone, rtol=0, atol=LOW_PRECISION_TOLERANCE)
