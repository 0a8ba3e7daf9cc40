"""Requests that match the OpenAPI document, or nearly do, get a documented reply and never a 500."""

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from bertsmith import Model
from bertsmith.app.server.app import create_app
from bertsmith.app.server.documents import EXAMPLES
from bertsmith.app.server.settings import ServerSettings
from server.models import load_index
from server.records import load_record_models
from server.threads import in_a_thread
from tasks.task_samples import write_base_model

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")

MANY = 150
KEY = "a key of the index"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("examples", [8, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_request_of_the_document_gets_a_500(models: dict[str, Model], tmp_path: Path, examples: int) -> None:
    index = load_index(tmp_path, write_base_model(tmp_path / "novels"))
    served = {**models, **load_record_models(tmp_path), **index}
    app = create_app(served, ServerSettings(max_characters=5000, max_texts=50), index_key=KEY)
    tried: dict[str, set[int]] = {}
    with in_a_thread(app) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()
            # A request without a body cannot be invalid.
            modes = list(schemathesis.GenerationMode)[: 2 if operation.method == "post" else 1]
            for mode in sorted(modes, key=lambda mode: mode.value):
                tried.setdefault(operation.label, set()).update(statuses(operation, mode, examples))
        # Few random texts have a [MASK] or suit the first model; the examples of the document do.
        answered = {f"POST {path}" for path, example in EXAMPLES.items() if post(f"{address}{path}", example) == 200}
    assert len(tried) == 34, "every operation was asked"
    assert all(tried[label] == {200} for label in tried if label.startswith("GET")), tried
    posts = {label for label in tried if label.startswith("POST")}
    assert answered == posts
    assert all(422 in tried[label] for label in posts), tried


def post(url: str, body: Mapping[str, Any]) -> int:
    """The status of a reply; raises HTTPError for a refusal."""
    data = json.dumps({key: value for key, value in body.items() if key != "model"}).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return int(reply.status)


def statuses(operation: Any, mode: Any, examples: int) -> set[int]:
    """The statuses of random requests, all of which match the document."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
    result = set()

    @settings(max_examples=examples, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        reply = case.call(headers={"authorization": f"Bearer {KEY}"})
        result.add(reply.status_code)
        case.validate_response(reply, checks=checks)

    ask()
    return result
