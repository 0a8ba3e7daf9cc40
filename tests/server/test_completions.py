"""/v1/completions: the texts of the library, whole and part by part, and what is refused."""

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith import Model, load
from bertsmith.app.server.app import create_app
from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from server.asgi import Client, Reply, replies_to, serve
from server.threads import in_a_thread
from tasks.architecture_samples import config_of, tokenizer_of

PROMPTS = ["anna was in rome", "the plot of the film"]
DRAWN = {"temperature": 1.5, "top_p": 0.9, "seed": 7}


def ask(models: dict[str, Model], *bodies: dict[str, Any], **limits: Any) -> list[Reply]:
    """The replies to requests that are sent at the same time."""
    return replies_to(models, *(("/v1/completions", body) for body in bodies), **limits)


def events_of(reply: Reply) -> list[Any]:
    """The events of a stream; the last one, [DONE], as text."""
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("text/event-stream")
    *events, rest = reply.body.decode().split("\n\n")
    assert rest == ""
    contents = [event.removeprefix("data: ") for event in events]
    return [content if content == "[DONE]" else json.loads(content) for content in contents]


def streamed_texts(reply: Reply) -> dict[int, tuple[str, str]]:
    """The text and the finish reason of each choice."""
    *events, last = events_of(reply)
    assert last == "[DONE]"
    assert len({event["id"] for event in events}) == 1
    texts: dict[int, tuple[str, str]] = {}
    for event in events:
        (choice,) = event["choices"]
        text, reason = texts.get(choice["index"], ("", None))
        assert reason is None, "nothing follows the end"
        texts[choice["index"]] = (text + choice["text"], choice["finish_reason"])
    return texts


def of_library(models: dict[str, Model], name: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    """The same texts from the library, each alone."""
    if name == "summaries":
        options = {"max_target_length": body["max_tokens"]} if "max_tokens" in body else {}
        answers = [models[name].generate([prompt], beam=1, answers=1, **options)[0] for prompt in PROMPTS]
        return [(answer.text, "stop" if answer.has_ended else "length") for answer in answers]
    seeds = range(body.get("seed", 1), body.get("seed", 1) + body.get("n", 1))
    draws = {key: body[key] for key in ("temperature", "top_p") if key in body}
    tokens = body.get("max_tokens", 16)
    completions = [
        models[name].complete([prompt], top=1, tokens=tokens, seed=seed, **draws)[0]
        for prompt in PROMPTS
        for seed in seeds
    ]
    return [(answer.continuation, "stop" if answer.has_ended else "length") for answer in completions]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("stories", {}),
        ("stories", {"max_tokens": 9, "n": 2, **DRAWN}),
        ("summaries", {}),
        ("summaries", {"max_tokens": 4}),
    ],
)
def test_the_texts_are_those_of_the_library_whole_and_streamed(
    models: dict[str, Model], name: str, options: dict[str, Any]
) -> None:
    body = {"model": name, "prompt": PROMPTS, **options}
    whole, streamed = ask(models, body, {**body, "stream": True})
    assert whole.status == 200, whole.body
    expected = of_library(models, name, options)
    choices = whole.json["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(expected)))
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == expected
    usage = whole.json["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    texts = streamed_texts(streamed)
    assert [texts[index] for index in range(len(expected))] == expected
    assert len(events_of(streamed)) > 2 * len(expected) + 1, "in several parts"


def test_the_library_passes_on_the_parts_of_one_text(models: dict[str, Model]) -> None:
    parts: list[str] = []
    (answer,) = models["stories"].complete(PROMPTS[:1], tokens=9, on_text=parts.append)
    assert ("".join(parts), len(parts) > 1) == (answer.continuation, True)
    parts.clear()
    (written,) = models["summaries"].generate(PROMPTS[:1], beam=1, answers=1, on_text=parts.append)
    assert ("".join(parts), len(parts) > 1) == (written.text, True)
    with pytest.raises(ConfigError, match="one text with on_text; found 2"):
        models["stories"].complete(PROMPTS, tokens=2, on_text=parts.append)
    with pytest.raises(ConfigError, match="with beam 1 and answers 1"):
        models["summaries"].generate(PROMPTS[:1], on_text=parts.append)


def test_what_cannot_be_completed_is_refused_before_a_stream_begins(models: dict[str, Model]) -> None:
    for body, status, message in (
        ({"prompt": []}, 422, "prompt"),
        ({"prompt": [3]}, 422, "prompt"),
        ({"prompt": "a", "max_tokens": 257}, 422, "max_tokens: expected at most 256; found 257"),
        ({"prompt": "a", "stop": ["."]}, 422, "stop: expected null, since it is not supported; found a list of 1"),
        ({"prompt": "a", "echo": True}, 422, "echo"),
        ({"prompt": "a", "model": "absent"}, 404, "no model 'absent'"),
        ({"prompt": "a", "model": "reviews"}, 400, "does not answer such a request"),
        ({"prompt": "a", "model": "stories", "n": 2}, 422, "n: expected 1 without temperature or top_p; found 2"),
        ({"prompt": "a", "model": "summaries", "n": 2}, 422, "n: expected 1; found 2 for 'summaries'"),
        ({"prompt": "a", "model": "summaries", "top_p": 0.5}, 422, "top_p: expected a language model"),
        ({"prompt": "film " * 500, "model": "stories"}, 422, "at most"),
        ({"prompt": "x" * 3000, "model": "stories"}, 413, "3,000 characters"),
    ):
        for reply in ask(models, body, {**body, "stream": True}, max_characters=2600):
            assert (reply.status, message in reply.error) == (status, True), reply.body
    for key in ("user", "unknown"):
        assert ask(models, {"prompt": "anna", "model": "stories", key: "1"})[0].status == 200, "ignored"


def test_the_client_of_openai_gets_its_texts(models: dict[str, Model]) -> None:
    openai = pytest.importorskip("openai", reason="needs the package openai")
    with (
        in_a_thread(create_app(models, ServerSettings())) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
    ):
        create = client.completions.create
        defaults = {"n": None, "frequency_penalty": 0.0, "presence_penalty": 0, "stop": None, "user": "1", "best_of": 1}
        for options in (
            {"model": "stories", "max_tokens": 9, "n": 2, **DRAWN},
            {"model": "summaries", "max_tokens": 4, "stream_options": None, **defaults},
        ):
            expected = of_library(models, options["model"], {key: value for key, value in options.items() if value})
            whole = create(prompt=PROMPTS, **options)
            assert [(choice.text, choice.finish_reason) for choice in whole.choices] == expected
            events = list(create(prompt=PROMPTS, **{**options, "stream": True}))
            assert all(event.choices and event.usage is None for event in events)
            options["stream_options"] = {"include_usage": True}
            *parts, last = create(prompt=PROMPTS, **{**options, "stream": True})
            assert (last.choices, last.usage, last.id) == ([], whole.usage, parts[0].id)
            assert all(part.usage is None for part in parts)
            of_choices = [
                [part.choices[0] for part in parts if part.choices[0].index == n] for n in range(len(expected))
            ]
            texts = ["".join(choice.text for choice in choices) for choices in of_choices]
            assert [
                (text, choices[-1].finish_reason) for text, choices in zip(texts, of_choices, strict=True)
            ] == expected
        prompts = sum(models["stories"].tokens(PROMPTS, "complete"))
        drawn = create(model="stories", prompt=PROMPTS, n=3, max_tokens=2, temperature=1)
        assert (drawn.usage.prompt_tokens, len(drawn.choices)) == (prompts, 6)
        for refused in (
            {"presence_penalty": 0.5},
            {"logit_bias": {"7": 1}},
            {"stream_options": {"include_usage": True}},
        ):
            with pytest.raises(openai.UnprocessableEntityError, match=next(iter(refused))):
                create(model="stories", prompt="anna", **refused)


def test_a_stream_of_many_texts_is_refused(models: dict[str, Model]) -> None:
    (reply,) = ask(models, {"prompt": ["a"] * 6, "model": "stories", "n": 3, "stream": True, **DRAWN})
    assert (reply.status, "stream: expected at most 16 texts; found 18" in reply.error) == (422, True)


def test_a_text_that_is_continued_at_its_beginning_comes_whole(tmp_path: Path) -> None:
    config = dataclasses.replace(config_of("awd-lstm", dropout=0.0), direction="backward")
    save_pretrained(
        tmp_path / "ends", untrained(config, 4), tokenizer_of("awd-lstm"), ModelMetadata.from_dict({}), trained=("mlm",)
    )
    models = {"ends": load(tmp_path / "ends", device="cpu")}
    whole, parts = ask(models, {"prompt": "was in rome"}, {"prompt": "was in rome", "stream": True})
    (expected,) = models["ends"].complete(["was in rome"], top=1, tokens=16)
    assert whole.json["choices"][0]["text"] == expected.continuation
    message = "stream: expected a model that reads forward; found 'ends', which continues texts at their beginning"
    assert (parts.status, message in parts.error) == (422, True)


def test_an_error_in_a_stream_is_its_last_event(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(ability: str, items: Any, on_text: Any = None, **options: Any) -> Any:
        on_text("anna ")
        raise InputError(expected="a right text", found="a wrong one", fix="write another")

    monkeypatch.setattr(models["stories"], "compute", compute)
    first, last = events_of(ask(models, {"prompt": "anna", "model": "stories", "stream": True})[0])
    assert first["choices"][0]["text"] == "anna "
    assert last["error"]["message"].startswith("expected a right text")


def test_a_stream_ends_in_time_and_when_its_client_leaves(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(ability: str, items: Any, on_text: Any = None, **options: Any) -> Any:
        while True:
            on_text("anna ")

    with monkeypatch.context() as patch:
        patch.setattr(models["stories"], "compute", compute)
        body = {"prompt": "anna", "model": "stories", "stream": True}
        *_, last = events_of(ask(models, body, request_seconds=0.2)[0])
        assert "needed more than 0.2 s" in last["error"]["message"]

        async def leave(client: Client) -> Reply:
            asyncio.get_running_loop().call_later(0.2, client.gone.set)
            return await client.post("/v1/completions", body)

        assert "[DONE]" not in events_of(serve(models, leave))
    assert streamed_texts(ask(models, body)[0])[0][0], "the model is free again"
