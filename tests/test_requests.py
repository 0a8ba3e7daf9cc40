"""Requests: what is given, what is refused, settings files, and the functions and commands that are made from them."""

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import bertsmith
from bertsmith.app.cli.app import application
from bertsmith.app.cli.help import TOPICS
from bertsmith.app.cli.request_options import REQUESTS, with_request
from bertsmith.app.library.loading import name_and_source
from bertsmith.base.core.requests import (
    Request,
    all_fields,
    as_toml,
    call,
    from_file,
    is_of_file,
    is_required,
    option_name,
    options_named,
    shown_of,
    takes,
    template,
    to_file,
    with_parameters,
)
from bertsmith.base.core.settings import Help, field_help, help_field
from bertsmith.recipes.comparison.request import CompareRequest
from tasks.task_samples import write_base_model
from written_files import file_with


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """A part."""

    learning_rate: float = help_field(0.5, "the peak", most=10)
    name: str | None = help_field(None, "a name")


@dataclasses.dataclass(frozen=True)
class Train(Request, Rates):
    """A request."""

    source: Annotated[str | Path, Help("a model", flag="--model", path="the model")]
    _: dataclasses.KW_ONLY
    seeds: int | None = help_field(None, "trainings", least=1, most=9)
    pairs: Mapping[str, str] | None = help_field(None, "names", flag="--map")
    texts: Sequence[str | Path] = help_field((), "texts", path="a text")
    out: str | Path | None = help_field(None, "a folder, with --map and --name of `load --map`", path=True)
    head: int | None = help_field(None, "a class", no_setting=True)
    times: bool = help_field(True, "measure", in_library_only=True)
    resume: bool = help_field(False, "resume")


@takes(Train)
def train(request: Train) -> Train:
    """The request.

    Raises:
        ConfigError: never.
    """
    return request


def test_a_request_knows_what_was_given_and_makes_its_parts() -> None:
    request = train("model", learning_rate=1.0)
    assert request.given == {"source", "learning_rate"}
    assert request.values(Rates) == {"learning_rate": 1.0}
    assert request.part(Rates) == Rates(learning_rate=1.0)
    changed = train("model", learning_rate=1.0, seeds=2)
    assert (changed.given, changed.seeds, changed.learning_rate) == ({"source", "learning_rate", "seeds"}, 2, 1.0)
    assert call(train, changed) is changed
    of_numpy = train("model", seeds=np.int64(3), texts=np.array(["a.txt"]))
    assert tomllib.loads(to_file(of_numpy)) == {"model": "model", "seeds": 3, "texts": ["a.txt"]}
    assert changed.replaced(seeds=3, source=Path("other")) == train(Path("other"), learning_rate=1.0, seeds=3)
    assert changed.replaced(seeds=3).given == changed.given


def test_a_function_gets_the_values_that_it_has_parameters_for() -> None:
    def learn(source: str, *, learning_rate: float = 0.1, name: str = "", width: int = 1) -> None: ...

    assert train(Path("model"), learning_rate=1.0, seeds=2).arguments(learn) == {
        "source": "model",
        "learning_rate": 1.0,
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rat": 1.0}, "unknown setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"learning_rate": "high"}, "learning_rate must be a number, not 'high'"),
        ({"seeds": 0}, "seeds must be at least 1 and at most 9, not 0"),
        ({"seeds": 10}, "seeds must be at least 1 and at most 9, not 10"),
        ({"seeds": 1.5}, "seeds must be a whole number, not 1.5"),
        ({"resume": "no"}, "resume must be true or false, not 'no'"),
        ({"texts": "a.txt"}, "texts must be a list, each item a text or a path, not 'a.txt'"),
        ({"texts": ["a.txt", 5]}, "texts must be a list, each item a text or a path, not ['a.txt', 5]"),
        ({"texts": [""]}, "expected a text as a path; found an empty text"),
        ({"pairs": [("1", "Claim")]}, "pairs must be a map from a text to a text, not [('1', 'Claim')]"),
        ({"pairs": {"1": 2}}, "pairs must be a map from a text to a text, not {'1': 2}"),
    ],
)
def test_what_cannot_be_is_refused_when_the_request_is_made(values: dict[str, object], message: str) -> None:
    with pytest.raises(bertsmith.BertsmithError, match=re.escape(message)):
        train("model", **values)


@pytest.mark.parametrize("source", ["", 5, None, b"model"])
def test_a_path_is_a_text_or_a_path(source: object) -> None:
    with pytest.raises(bertsmith.InputError, match="expected the model as a path"):
        train(source)


def test_the_function_shows_its_parameters_and_their_help() -> None:
    signature = inspect.signature(train)
    assert [*signature.parameters] == [
        "source", "learning_rate", "name", "seeds", "pairs", "texts", "out", "head", "times", "resume",
    ]  # fmt: skip
    assert (signature.parameters["source"].annotation, signature.return_annotation) == (str | Path, Train)
    with pytest.raises(bertsmith.ConfigError) as refusal:
        train()
    assert str(refusal.value) == "expected train(source, ...); found no source; give source: a model"
    with pytest.raises(bertsmith.ConfigError, match=r"\(source, \.\.\.\); found 9 arguments without a name"):
        train(*"abcdefghi")
    text = inspect.getdoc(train) or ""
    assert text.startswith("The request.\n\nArgs:\n    source: a model\n    seeds: trainings")
    assert text.index("learning_rate: the peak") < text.index("Raises:")
    assert "out: a folder, with `pairs` and `name` of `load --map`\n" in text


def test_a_settings_file_holds_what_was_given_under_the_names_of_the_options(tmp_path: Path) -> None:
    request = train('a "model"\n', seeds=3, pairs={"1": "Claim"}, learning_rate=1e-5, resume=True)
    path = file_with(tmp_path / "settings.toml", to_file(request))
    assert set(tomllib.loads(to_file(request))) == {"model", "seeds", "map", "learning_rate"}
    values = from_file(Train, path)
    assert Train(**values) == dataclasses.replace(request, resume=False)


def test_a_request_records_the_addresses_that_were_given_and_not_their_copies() -> None:
    request = train("/cache/m", texts=["/cache/a.txt", "b.txt"], seeds=3).copied_from(
        {"source": "s3://bucket/m", "texts": ["s3://bucket/a.txt", "b.txt"]}
    )
    for each in (request, request.replaced(seeds=4)):
        values = tomllib.loads(to_file(each))
        assert (values["model"], values["texts"]) == ("s3://bucket/m", ["s3://bucket/a.txt", "b.txt"])
        assert each.source == "/cache/m"
    assert tomllib.loads(to_file(request.replaced(source="other")))["model"] == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = 1", "'seed'; did you mean 'seeds'"),
        ("[rates]\nseeds = 1\n[other]\nseeds = 2", "found seeds twice"),
        ("seeds = 'a'", "must be a whole number, not 'a'"),
        ("seeds = ", "expected TOML"),
        (f"seeds = {'[' * 5000}", "expected TOML"),
        (f"seeds = {'9' * 5000}", "expected TOML"),
        ("resume = true", "found resume; give --resume on the command line"),
        ("head = 5", "found head; give --head on the command line"),
        ("times = false", "found times; leave it out"),
        ("model = 5", "must be a text or a path, not 5"),
        ("model = ['m']", "must be a text or a path, not ['m']"),
        ("out = ''", "found an empty text; name a file or folder"),
        ("texts = 'a.txt'", "must be a list, each item a text or a path, not 'a.txt'"),
        ("map = {1 = 2}", "must be a map from a text to a text"),
        ("source = 'x'", f"unknown setting of bertsmith {bertsmith.__version__} in "),  # perhaps of a newer version
        ("[pairs]\n1 = 'Claim'", "found pairs; write map"),
    ],
)
def test_a_settings_file_that_is_wrong_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = file_with(tmp_path / "settings.toml", text)
    with pytest.raises(bertsmith.BertsmithError, match=re.escape(message)):
        from_file(Train, path)
    with pytest.raises(bertsmith.BertsmithError, match="found none"):
        from_file(Train, tmp_path / "missing.toml")


def test_a_settings_file_may_have_a_byte_order_mark_and_paths_below_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "settings.toml"
    path.write_text('model = "~/model"\ntexts = ["~/a.txt", "b.txt"]\n', encoding="utf-8-sig")
    assert from_file(Train, path) == {"source": str(tmp_path / "model"), "texts": [str(tmp_path / "a.txt"), "b.txt"]}
    path.write_text('data = "~/dev.tsv"\nhierarchy = "~/tree.tsv"\n')
    below = {"data": str(tmp_path / "dev.tsv"), "hierarchy": str(tmp_path / "tree.tsv")}
    assert from_file(REQUESTS["evaluate"], path) == from_file(REQUESTS["quantize"], path) == below
    assert name_and_source("mine=~/model") == ("mine", str(tmp_path / "model"))


@pytest.mark.parametrize("command", REQUESTS)
def test_the_template_of_a_command_is_a_settings_file_with_all_its_settings(command: str, tmp_path: Path) -> None:
    request = REQUESTS[command]
    lines = list(template(request, TOPICS))
    uncommented = [line.removeprefix("# ") if " = " in line and not line.endswith(" = ") else line for line in lines]
    settings = [line for line in uncommented if line.partition(" = ")[0].isidentifier() or line.startswith("[")]
    path = file_with(tmp_path / "settings.toml", "\n".join(settings))
    values = from_file(request, path)
    required = {field.name for _, field in all_fields(request) if is_required(field)}
    assert not required & values.keys(), "they are left to the command line"
    defaults = {
        field.name for _, field in all_fields(request)
        if shown_of(field, request)[1] is not None and not is_required(field)
        and is_of_file(field, request)
    }  # fmt: skip
    assert defaults <= values.keys()
    result = CliRunner().invoke(application("settings"), ["settings", *command.split()])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [line.rstrip() for line in lines]


def test_values_of_toml_come_back(tmp_path: Path) -> None:
    for value in ('a\\b"\u0001é\n', [1, 2.5, True], {"a b": "c"}, -3, False, np.float64(1e-5)):
        assert tomllib.loads(f"x = {as_toml(value)}")["x"] == value


def test_the_command_line_has_precedence_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(
        f'model = "{tmp_path / "missing"}"\ntask = "spam"\nout = "{tmp_path / "out"}"\nepochs = 2.0\n', encoding="utf-8"
    )
    other = tmp_path / "other"
    result = CliRunner().invoke(
        application("finetune"), ["finetune", "--settings", str(path), "--model", str(other)], catch_exceptions=True
    )
    assert str(other) in str(result.exception)
    result = CliRunner().invoke(application("finetune"), ["finetune", "--settings", str(path)], catch_exceptions=True)
    assert str(tmp_path / "missing") in str(result.exception)


def test_a_table_and_a_list_of_a_file_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = []

    def compare(request: CompareRequest) -> None:
        requests.append(request)

    path = tmp_path / "settings.toml"
    path.write_text(
        'task = "spam"\nout = "report"\nsystems = ["tf-idf", "glove"]\nlabels = [100, "all"]\n[map]\n"a=b" = " c"\n',
        encoding="utf-8",
    )
    command = typer.Typer()
    command.command()(with_request(compare, CompareRequest))
    for arguments in ([], ["--systems", "ppmi,elmo", "--map", "f=g"]):
        result = CliRunner().invoke(command, ["--settings", str(path), *arguments])
        assert result.exit_code == 0, result.output
    first, second = requests
    assert (first.systems, first.labels, first.map_labels) == (["tf-idf", "glove"], [100, "all"], {"a=b": " c"})
    assert (second.systems, second.labels, second.map_labels) == (["ppmi", "elmo"], [100, "all"], {"f": "g"})
    path.write_text('task = "spam"\nout = "report"\nsystems = ["tf-idf,glove"]\n', encoding="utf-8")
    result = CliRunner().invoke(command, ["--settings", str(path)])
    assert "found 'tf-idf,glove'" in str(result.exception)


def test_what_a_file_holds_is_not_remembered_by_the_next_call(tmp_path: Path) -> None:
    requests: list[Request] = []

    def compare(request: CompareRequest) -> None:
        requests.append(request)

    path = file_with(tmp_path / "settings.toml", 'systems = ["ppmi"]\n[map]\n"a" = "c"\n')
    command = typer.Typer()
    command.command()(with_request(compare, CompareRequest))
    for arguments in (["--settings", str(path)], []):
        result = CliRunner().invoke(command, ["--task", "spam", "--out", "report", *arguments])
        assert result.exit_code == 0, result.output
    assert [request.given for request in requests] == [{"task", "out", "systems", "map_labels"}, {"task", "out"}]


def test_a_default_has_the_same_form_in_the_help_of_a_request_and_of_its_parts() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Part:
        size: int = help_field(8, "size", least=1)
        shuffle: bool = help_field(False, "shuffle")

    @dataclasses.dataclass(frozen=True)
    class Both(Request, Part):
        model: Annotated[str, Help("model", flag="MODEL")]
        _: dataclasses.KW_ONLY
        texts: Sequence[str] = help_field((), "texts", kind=list[str])
        top: int = help_field(5, "top", least=1)
        lines: bool = help_field(True, "lines")
        replace: bool = help_field(False, "replace")

    shown = inspect.signature(with_request(lambda request: None, Both)).parameters
    options = {name: parameter.annotation.__metadata__[0] for name, parameter in shown.items() if name != "context"}
    helps = [options[field.name].help for _, field in all_fields(Both)]
    assert helps == ["model", "texts", "top [5]", "lines [yes]", "replace", "size [8]", "shuffle [no]"]
    names = {name: option.default for name, option in options.items() if name in ("lines", "replace", "shuffle")}
    assert names == {  # typer calls them so
        "lines": "--lines/--no-lines",
        "replace": "--replace",
        "shuffle": "--shuffle/--no-shuffle",
    }
    assert {name for name, parameter in shown.items() if parameter.default is inspect.Parameter.empty} == {
        "model",
        "context",
    }


def test_a_run_keeps_its_request_and_starts_again_from_it(tmp_path: Path) -> None:
    train = tmp_path / "train.csv"
    train.write_text("text,label\n" + "".join(f"a {['bad', 'good'][i % 2]} day,{i % 2}\n" for i in range(24)))
    result = bertsmith.finetune(
        write_base_model(tmp_path / "base"), "classification", tmp_path / "run", train=train, seeds=1, epochs=1,
        baselines=False, map_labels={"0": "Bad", "1": "Good"}, device="cpu",
    )  # fmt: skip
    values = from_file(REQUESTS["finetune"], tmp_path / "run" / "request.toml")
    assert (values["epochs"], values["seeds"], values["map_labels"]) == (1, 1, {"0": "Bad", "1": "Good"})
    again = call(bertsmith.finetune, REQUESTS["finetune"](**{**values, "out": tmp_path / "again"}))
    assert again.report["scores"] == result.report["scores"]


def test_an_option_of_a_task_is_refused_without_one_also_where_it_is_zero() -> None:
    adapt = REQUESTS["adapt"]
    adapt("starter", ["a.txt"], "out", from_scratch=False, train=None).require_task()
    with pytest.raises(bertsmith.ConfigError, match="--word-column needs --task"):
        adapt("starter", ["a.txt"], "out", word_column=0).require_task()


def test_a_report_of_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bertsmith.ConfigError, match="expected run folders; found none"):
        bertsmith.write_report([])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["codes train", "codes train-video", "memory train", "train-translation"])
def test_the_defaults_that_a_help_shows_are_those_of_the_training(command: str) -> None:
    kind = REQUESTS[command]
    fields = {field.name: field for _, field in all_fields(kind)}
    request = kind("input", "run", **({"steps": 5} if command == "train-translation" else {}))
    training = request.training if command == "train-translation" else request.training(100)
    for name in kind.usual:
        about, default = shown_of(fields[name], kind)
        assert "auto:" not in about
        assert default in (None, getattr(training, name))


def test_a_field_may_be_given_by_the_name_of_its_option() -> None:
    assert train(model="model", map={"1": "Claim"}) == train("model", pairs={"1": "Claim"})
    with pytest.raises(bertsmith.ConfigError, match="found model and source, which are the same; leave model out"):
        train(source="a", model="b")
    with pytest.raises(bertsmith.ConfigError, match="found source twice; give it by its place or by its name"):
        train("a", model="b")


def test_errors_name_parameters_to_python_and_options_to_the_command_line() -> None:
    @takes(Train)
    def fail(request: Train) -> None:
        fix = f"give --model MODEL, --name mean or --map, leave --resume out, or use `load --map`, not --{request.name}"
        raise bertsmith.RunError(expected="--seeds 3", found="--no-resume", fix=fix)

    message = (
        'expected `seeds=3`; found `resume=False`; give `source=...`, `name="mean"` or `pairs`, leave `resume=True` '
        "out, or use `load --map`, not --other"
    )
    with pytest.raises(bertsmith.RunError) as error:
        fail("model", name="other")
    assert (str(error.value), error.value.expected) == (message, "`seeds=3`")
    with options_named(), pytest.raises(bertsmith.RunError, match="give --model MODEL, --name mean or --map, leave"):
        fail("model", name="other")


@pytest.mark.parametrize("command", REQUESTS)
def test_the_option_of_every_field_is_named_as_a_parameter(command: str) -> None:
    fields = [field for _, field in all_fields(REQUESTS[command]) if not field_help(field).in_library_only]
    for field in fields:
        option = f"--{option_name(field).replace('_', '-')}"
        assert with_parameters(f"name it with {option}, or leave {option} out", fields).count(f"`{field.name}") == 2
    text = with_parameters("with --unheard-of, see `bertsmith --help`", fields)
    assert text == "with --unheard-of, see `bertsmith --help`"


def test_a_list_after_an_option_is_one_value() -> None:
    fields = [field for _, field in all_fields(REQUESTS["distill"])]
    assert with_parameters("use --layers 1,2, or none", fields) == 'use `layers="1,2"`, or none'


@pytest.mark.parametrize("rate", ["5e-05", "0.0025", "1", "1e+16"])
def test_a_number_after_an_option_is_its_value_however_it_is_written(rate: str) -> None:
    fields = [field for _, field in all_fields(REQUESTS["finetune"])]
    assert with_parameters(f"--learning-rate {rate} --keep last", fields) == f'`learning_rate={rate}` `keep="last"`'
