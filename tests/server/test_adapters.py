"""Adapters that share one encoder: rows of several in one pass, equal to each adapter alone and to merged weights."""

import asyncio
import dataclasses
import functools
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith import Model, load
from bertsmith.app.library.adapted_models import load_adapted
from bertsmith.app.library.loading import load_models
from bertsmith.app.server.queue import shared_encoder_of
from bertsmith.base.core.errors import InputError
from checkpoints.test_adapters import written
from server.asgi import Client, sample, serve, until
from tasks.architecture_samples import write_base_model

# The precision of the weights' products decides the last digits: fp32, in another order of the sums.
CLOSE = {"rtol": 1e-4, "atol": 5e-5}
TEXTS = ["the man went to the store", "a dog", "the the man", "he likes it", "a"]
CALLS: dict[str, tuple[str, Sequence[Any]]] = {
    "single": ("classify", TEXTS),
    "tags": ("tag", TEXTS),
    "answer": ("answer", [("a dog", "the man likes a dog"), ("the man", "it")]),
}


def adapters_of(
    folder: Path, architecture: str = "bert", targets: Sequence[str | None] = (None,) * 3, **changes: Any
) -> dict[str, Path]:
    """An adapter of random numbers for each kind of task, on one base; its merged model is next to it."""
    base = Path(write_base_model(folder / "base", architecture, **changes))
    paths = {kind: folder / kind / "adapter" for kind in CALLS}
    for (kind, path), names in zip(paths.items(), targets, strict=True):
        path.parent.mkdir()
        written(base, path, kind, None if names is None else [names])
    return paths


def numbers(answers: Sequence[Any]) -> Any:
    return [dataclasses.asdict(answer) if dataclasses.is_dataclass(answer) else answer for answer in answers]


def assert_same(answers: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert answers.keys() == expected.keys()
        answers, expected = list(answers.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        assert len(answers) == len(expected)
        for answer, wanted in zip(answers, expected, strict=True):
            assert_same(answer, wanted)
    elif isinstance(expected, float):
        np.testing.assert_allclose(answers, expected, **CLOSE)
    else:
        assert answers == expected


def together(models: dict[str, Model], calls: dict[str, tuple[str, Sequence[Any]]]) -> list[Any]:
    """The answers of several models in common passes."""
    shared = shared_encoder_of(next(iter(models.values())))
    assert shared is not None
    read = {name: models[name].read(items, ability)[0] for name, (ability, items) in calls.items()}

    def call(name: str) -> Any:
        ability = calls[name][0]
        return models[name].compute(ability, read[name], **({"n_best": 1} if ability == "answer" else {}))

    return shared.together([lambda name=name: call(name) for name in calls])  # type: ignore[misc]


# DeBERTa's queries and keys of distances depend on the adapter; in version 3 they have the weights of those of tokens.
V3 = {"share_att_key": True}


@pytest.mark.parametrize("products", ["plain", "packed"])
@pytest.mark.parametrize(
    "architecture",
    [
        "bert",
        "roberta",
        "distilbert",
        "albert",
        "mpnet",
        "modernbert",
        "nomic_bert",
        "gte",
        "eurobert",
        "deberta-v2",
        "deberta-v3",
    ],
)
def test_adapters_in_one_pass_answer_as_alone_and_as_merged(architecture: str, products: str, tmp_path: Path) -> None:
    changes = V3 if architecture == "deberta-v3" else {}
    paths = adapters_of(tmp_path, architecture.replace("v3", "v2"), (None, "all-linear", None), **changes)
    models = load_adapted(str(tmp_path / "base"), paths, device="cpu", products=products)
    assert models.keys() == paths.keys()
    shared = shared_encoder_of(models["single"])
    assert shared is not None
    passes: list[int] = []
    shared.encoder.register_forward_pre_hook(lambda module, inputs: passes.append(inputs[0].num_rows))
    joint = dict(zip(CALLS, together(models, CALLS), strict=True))
    assert passes == [sum(len(set(map(str, items))) for _, items in CALLS.values())]
    for name, (ability, items) in CALLS.items():
        merged = load(paths[name], device="cpu", products=products)
        assert_same(numbers(joint[name]), numbers(getattr(merged, ability)(items)))
        assert_same(numbers(getattr(models[name], ability)(items)), numbers(getattr(merged, ability)(items)))


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.03), ("int8", 0.1)])
def test_in_low_precision_they_are_as_close_as_its_rounding(
    architecture: str, precision: str, tolerance: float, tmp_path: Path
) -> None:
    paths = adapters_of(tmp_path, architecture, **(V3 if "deberta" in architecture else {}))
    models = load_adapted(str(tmp_path / "base"), paths, device="cpu", precision=precision)
    exact = load(paths["single"], device="cpu").classify(TEXTS)
    joint = together(models, {name: CALLS[name] for name in ("tags", "single")})[1]
    for prediction, expected in zip(joint, exact, strict=True):
        np.testing.assert_allclose(prediction.probabilities, expected.probabilities, atol=tolerance)


def test_vectors_of_a_base_with_an_adapter_are_those_of_merged_weights(tmp_path: Path) -> None:
    paths = adapters_of(tmp_path)
    models = load_adapted(str(tmp_path / "base"), paths, device="cpu")
    rows, _ = models["single"].read(TEXTS, "embed")
    vectors, tags = shared_encoder_of(models["single"]).together(  # type: ignore[union-attr]
        [
            lambda: models["single"].compute("embed", rows),
            lambda: models["tags"].compute("tag", models["tags"].read(TEXTS, "tag")[0]),
        ]
    )
    np.testing.assert_allclose(vectors, load(paths["single"], device="cpu").embed(TEXTS), **CLOSE)
    assert_same(numbers(tags), numbers(load(paths["tags"], device="cpu").tag(TEXTS)))


def test_one_adapter_of_a_base_is_merged_and_several_share_it(tmp_path: Path) -> None:
    paths = adapters_of(tmp_path)
    alone = load_models([str(paths["single"]), f"base={tmp_path / 'base'}"], device="cpu")
    assert [shared_encoder_of(model) for model in alone.values() if isinstance(model, Model)] == [None, None]
    models = load_models([f"{name}={path}" for name, path in paths.items()], device="cpu")
    assert list(models) == list(paths)
    shared = {id(shared_encoder_of(model)) for model in models.values() if isinstance(model, Model)}
    assert len(shared) == 1
    first = shared_encoder_of(models["single"])  # type: ignore[union-attr]
    tables = {model.encoder.model.word_table.data_ptr() for model in models.values()}  # type: ignore[union-attr]
    assert tables == {first.encoder.word_table.data_ptr()}  # type: ignore[union-attr]


def test_the_errors_of_a_call_are_its_own_and_a_mistake_of_ours_ends_no_other(tmp_path: Path) -> None:
    models = load_adapted(str(tmp_path / "base"), adapters_of(tmp_path), device="cpu")
    shared, rows = shared_encoder_of(models["single"]), models["single"].read(TEXTS, "classify")[0]
    assert shared is not None

    def wrong() -> None:
        raise InputError(expected="a right text", found="a wrong one", fix="write another")

    answers, error = shared.together([lambda: models["single"].compute("classify", rows), wrong])
    assert len(answers) == len(TEXTS)
    assert isinstance(error, InputError)
    ended = threading.Event()
    with pytest.raises(ZeroDivisionError):
        shared.together([lambda: models["single"].compute("classify", rows) and ended.set(), lambda: 1 // 0])
    assert ended.is_set()

    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    hook = shared.encoder.register_forward_pre_hook(stops)
    with pytest.raises(KeyboardInterrupt):
        shared.together([lambda: models["single"].compute("classify", rows), lambda: None])
    hook.remove()
    assert len(models["single"].classify(TEXTS)) == len(TEXTS)


def test_requests_that_name_different_adapters_are_one_batch(tmp_path: Path) -> None:
    paths = adapters_of(tmp_path)
    models = load_models([f"{name}={path}" for name, path in paths.items()], device="cpu")
    shared = shared_encoder_of(models["single"])  # type: ignore[union-attr]
    let, rows = threading.Event(), list[int]()

    def wait(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        rows.append(inputs[0].num_rows)
        assert let.wait(120)

    shared.encoder.register_forward_pre_hook(wait)  # type: ignore[union-attr]

    async def script(client: Client) -> list[Any]:
        asked = [asyncio.ensure_future(client.post("/predict", {"model": "single", "texts": ["a dog"]}))]
        while not rows:
            await asyncio.sleep(0.01)
        asked += [
            asyncio.ensure_future(client.post(path, {"model": name, **body}))
            for name, path, body in (
                ("tags", "/tag", {"texts": TEXTS[:2]}),
                ("single", "/predict", {"texts": TEXTS}),
                ("answer", "/answer", {"questions": [{"question": "a dog", "context": "the man likes a dog"}]}),
                ("tags", "/v1/embeddings", {"input": "a dog"}),
            )
        ]
        await until(lambda: sum(sample(client, f'bertsmith_waiting_texts{{model="{name}"}}') for name in paths) == 9)
        let.set()
        return [await each for each in asked]

    replies = serve(models, script)
    assert [reply.status for reply in replies] == [200] * 5, replies
    assert rows == [1, 9]
    alone = load(paths["single"], device="cpu").classify(TEXTS)
    assert_same(replies[2].json["predictions"], [answer.to_dict() for answer in alone])


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
def test_sentence_encoders_share_an_encoder_and_their_vectors_are_those_of_merged_weights(
    architecture: str, tmp_path: Path
) -> None:
    base = write_base_model(tmp_path / "base", architecture)
    (tmp_path / "single").mkdir()
    written(Path(base), tmp_path / "single" / "adapter", "single")
    pairs = [{"text": text, "pair": other} for text, other in itertools.pairwise(TEXTS)]
    forms: dict[str, dict[str, Any]] = {
        "first": {"reads": "cls", "passage_prompt": "it "},
        "short": {"widths": "16"},
        "tokens": {"vectors": "tokens"},
    }
    for name, options in forms.items():
        bertsmith.finetune(
            base, "pairs", tmp_path / name, train=pairs, dev=pairs, lora_rank=2, lora_targets="all-linear", epochs=2,
            learning_rate=0.1, seeds=1, baselines=False, device="cpu", **options,
        )  # fmt: skip
    paths = {name: tmp_path / name / "adapter" for name in ("single", *forms)}
    models: Any = load_models([f"{name}={path}" for name, path in paths.items()], device="cpu")
    (shared,) = {shared_encoder_of(model) for model in models.values()}
    alone = {name: load(path, device="cpu") for name, path in paths.items()}

    def answered(model: Model, name: str) -> Any:
        if name == "tokens":
            return model.embedder.queries(TEXTS).vectors  # type: ignore[attr-defined]
        if name == "single":
            return model.compute("classify", model.read(TEXTS, "classify")[0])
        return model.compute("embed", model.read(TEXTS[:3], "embed")[0])

    passes: list[int] = []
    shared.encoder.register_forward_pre_hook(lambda module, inputs: passes.append(inputs[0].num_rows))
    calls = [functools.partial(answered, models[name], name) for name in models]
    joint = dict(zip(models, shared.together(calls), strict=True))
    assert passes == [2 * len(TEXTS) + 2 * 3]
    plain = load(base, device="cpu")
    for name in forms:
        np.testing.assert_allclose(joint[name], answered(alone[name], name), **CLOSE)
        assert models[name].embedder.settings == alone[name].embedder.settings
    assert_same(numbers(joint["single"]), numbers(answered(alone["single"], "single")))
    assert abs(joint["short"] - plain.embed(TEXTS[:3])).max() > 0.01, "the adapter has an effect"
