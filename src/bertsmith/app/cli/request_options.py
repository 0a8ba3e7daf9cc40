"""Options made from the fields of a request, and settings files; see `bertsmith.base.core.requests`."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.help import TOPICS
from bertsmith.app.cli.options import (
    MODEL_PARAMETERS,
    VERIFY,
    before_torch,
    class_weights,
    label_map,
    names,
    number_or_auto,
    on_this_machine,
    own_head,
    require_inputs,
    say,
    text_weights,
    verify_models,
    vocabulary_size,
)
from bertsmith.base.core.errors import ConfigError, nearest
from bertsmith.base.core.parameters import DEVICE, PRECISION
from bertsmith.base.core.registry import Registry
from bertsmith.base.core.requests import (
    COPIED,
    Request,
    all_fields,
    from_file,
    is_required,
    option_name,
    options_named,
    parts_of,
    plain_type,
    shown_of,
    template,
)
from bertsmith.base.core.settings import Help, field_help
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.remote import require_host

# The commands that take a request, and where it is; imported for the command that runs.
REQUESTS = Registry[type[Request]](
    {
        "adapt": "recipes.adaptation.settings:AdaptRequest",
        "ask": "inference.search.request:AskRequest",
        "audit": "recipes.audit.request:AuditRequest",
        "check": "text.corpus.request:CheckRequest",
        "classify": "inference.predictors.request:ClassifyRequest",
        "codes anomalies": "recipes.codes.request:AnomaliesRequest",
        "codes build": "recipes.codes.request:BuildCodesRequest",
        "codes embed": "recipes.codes.request:EmbedSubjectsRequest",
        "codes predict": "recipes.codes.request:PredictCodesRequest",
        "codes train": "recipes.codes.request:TrainCodesRequest",
        "codes cluster": "recipes.video.request:ClusterRequest",
        "codes assign": "recipes.video.request:AssignRequest",
        "codes train-video": "recipes.video.request:TrainVideoRequest",
        "codes fill": "recipes.video.request:FillCodesRequest",
        "codes match": "recipes.video.request:MatchCodesRequest",
        "codes next": "recipes.video.request:NextCodesRequest",
        "codes features": "recipes.video.request:CodeFeaturesRequest",
        "compare": "recipes.comparison.request:CompareRequest",
        "complete": "inference.predictors.request:CompleteRequest",
        "contexts": "inference.search.request:ContextsRequest",
        "convert": "inference.export.request:ConvertRequest",
        "corpus": "text.corpus.request:CorpusRequest",
        "demo": "app.library.request:DemoRequest",
        "disambiguate": "inference.search.request:DisambiguateRequest",
        "distill corpus": "recipes.distillation.request:DistillCorpusRequest",
        "distill": "recipes.distillation.request:DistillRequest",
        "drift": "app.library.request:DriftRequest",
        "embed": "inference.vectors.request:EmbedRequest",
        "evaluate": "inference.predictors.request:EvaluateRequest",
        "features": "inference.vectors.request:FeaturesRequest",
        "fill": "inference.predictors.request:FillRequest",
        "finetune": "recipes.finetuning.request:FinetuneRequest",
        "gloss-pairs": "inference.search.request:GlossPairsRequest",
        "glue": "recipes.results.published_scores:GlueRequest",
        "index": "inference.indexes.request:IndexRequest",
        "index compact": "inference.indexes.request:CompactIndexRequest",
        "index export": "inference.indexes.request:ExportIndexRequest",
        "index join": "inference.indexes.request:JoinIndexesRequest",
        "index remove": "inference.indexes.request:RemoveFromIndexRequest",
        "inputs": "text.documents.request:InputsRequest",
        "inspect": "inference.export.request:InspectRequest",
        "memory answer": "recipes.memory.request:AnswerMemoryRequest",
        "memory train": "recipes.memory.request:TrainMemoryRequest",
        "models": "inference.export.request:ModelsRequest",
        "next": "inference.predictors.request:NextRequest",
        "perplexity": "inference.predictors.request:PerplexityRequest",
        "plan": "training.planning.settings:PlanRequest",
        "predict": "inference.predictors.request:PredictRequest",
        "pretrain": "training.pretraining.request:PretrainRequest",
        "push": "inference.export.request:PushRequest",
        "quantize": "inference.predictors.request:QuantizeRequest",
        "rank": "inference.search.request:RankRequest",
        "rates": "training.pretraining.request:RatesRequest",
        "report": "app.library.request:ReportRequest",
        "search": "inference.search.request:SearchRequest",
        "senses": "inference.search.request:SensesRequest",
        "serve": "app.server.settings:ServeRequest",
        "sizes": "app.library.request:SizesRequest",
        "tokenize": "text.documents.request:TokenizeRequest",
        "train-translation": "recipes.translation.request:TrainTranslationRequest",
        "translate": "recipes.translation.request:TranslateRequest",
        "upgrade": "app.library.request:UpgradeRequest",
        "vectors analogy": "inference.word_vectors.request:AnalogyRequest",
        "vectors convert": "inference.word_vectors.request:ConvertVectorsRequest",
        "vectors neighbours": "inference.word_vectors.request:NeighboursRequest",
        "vectors opposites": "inference.word_vectors.request:OppositesRequest",
        "vectors show": "inference.word_vectors.request:ShowRequest",
        "vectors similarity": "inference.word_vectors.request:SimilarityRequest",
        "vectors static": "inference.vectors.request:StaticVectorsRequest",
        "vectors train": "inference.word_vectors.settings:TrainVectorsRequest",
        "vectors": "inference.vectors.request:VectorsRequest",
        "vocab": "text.documents.request:VocabularyRequest",
    }
)
# How a value of the command line becomes that of a field, for fields that take something else.
TYPED: dict[str, Callable[[Any], Any]] = {
    "head": own_head,
    "map_labels": label_map,
    "systems": names,
    "by": names,
    "labels": names,
    "weights": text_weights,
    "class_weights": class_weights,
    "model_vocabulary": vocabulary_size,
    "clusters": number_or_auto,
}
DESTINATION = "DST"  # the only argument with the path of an output
SETTINGS = "settings"  # the parameter of the option --settings, which no request has


def settings(
    words: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="a command with the option --settings, such as finetune")
    ],
) -> None:
    """Print a settings file of a command: every setting with its help and its default, as comments.

    Save it, uncomment what you change, and pass it with --settings; options on the command line take precedence.
    """
    command = " ".join(words)
    if command not in REQUESTS:
        raise ConfigError(expected="a command with --settings", found=repr(command), fix=nearest(command, REQUESTS))
    for line in template(REQUESTS[command], TOPICS):
        say(line)


def with_request(command: Callable[..., None], request: type[Request] | None) -> Callable[..., None]:
    """The command, which takes a request, with an argument or option for each field.

    An option has the name, type, default and help of its field. Of a field that several parts share, the first part
    defines it. With --settings FILE a file gives what the command line does not. Parameters of the command after the
    request, about what it prints, stay as they are. Without a request it has no parameters, as for a list of commands.
    """
    if request is None:
        return _called_like(command, lambda: None, ())
    fields = {
        field.name: (source, field) for source, field in all_fields(request) if not field_help(field).in_library_only
    }
    extra = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(command).parameters.values())[1:]
    ]
    reads_model = not {option_name(field) for _, field in fields.values()}.isdisjoint(MODEL_PARAMETERS)

    exact: dict[str, Any] = {}  # of the settings file

    def wrapper(context: typer.Context, **values: Any) -> None:
        del values[SETTINGS]
        verify = reads_model and values.pop("verify")
        shown = {
            name: on_this_machine(name, values.pop(name), None) for name in (parameter.name for parameter in extra)
        }
        values = {name: value for name, value in values.items() if _is_given(name, value, context)}
        asked = dict(values)
        # Whatever is refused comes before gigabytes are copied.
        for name in sorted(values, key=lambda name: _treatment(fields[name][1]) == COPIED):
            values[name] = on_this_machine(name, values[name], _treatment(fields[name][1]))
        if verify:
            verify_models(value for name, value in values.items() if _names_models(fields[name][1]))
        typed = {name: TYPED.get(name, lambda value: value)(value) for name, value in values.items()}
        copied = {name: _address(value) for name, value in asked.items() if value != values[name]}
        with options_named(), before_torch(lambda: _require_inputs((fields[name][1], values[name]) for name in values)):
            command(request(**{**exact, **typed}).copied_from(copied), **shown)

    first = [_parameter(*pair, request) for pair in fields.values() if pair[0] is request]
    signature = [*first, *extra, *(_parameter(*pair, request) for pair in fields.values() if pair[0] is not request)]
    if reads_model:
        signature.append(_keyword("verify", False, Annotated[bool, VERIFY]))
    signature.append(_keyword(SETTINGS, None, Annotated[Path | None, _settings_option(request, exact)]))
    signature.append(_keyword("context", inspect.Parameter.empty, typer.Context))
    return _called_like(command, wrapper, signature)


def _called_like(
    command: Callable[..., None], function: Callable[..., None], signature: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The function, with the name and help of a command and a signature for typer."""
    function.__name__, function.__doc__ = command.__name__, command.__doc__
    function.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in signature}
    return function


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parameter(source: type, field: "dataclasses.Field[Any]", request: type[Request]) -> inspect.Parameter:
    """A field as a parameter of typer's, whose value is None if it is not given; the help ends with the default.

    The default of a field of several parts is shown if it is that of all of them.
    """
    about, in_part = field_help(field), source is not request
    defaults = [other.default for other in _same_fields(field.name, request)] if in_part else [field.default]
    text, default = shown_of(field, request)
    if field.name not in request.usual and any(other != defaults[0] for other in defaults):
        default = None
    flag = about.flag or "--" + field.name.replace("_", "-")
    kind = about.kind or plain_type(field.type)
    # What is off by default can be turned on by a recipe, if it is a setting of a part.
    is_switch = default is True or plain_type(field.type) == bool | None or (default is False and in_part)
    is_negatable = is_switch and about.flag is None
    help = text + (_shown(default) if is_negatable or not isinstance(default, bool) else "")
    if flag.startswith("-"):
        declared = f"{flag}/--no-{flag[2:]}" if is_negatable else flag
        panel = TOPICS.get(source.__name__)
        option = typer.Option(declared, help=help, metavar=about.metavar, rich_help_panel=panel, **_limits(about))
    else:
        option = typer.Argument(help=help, metavar=flag)
    if is_required(field):
        return _keyword(field.name, inspect.Parameter.empty, Annotated[kind, option])
    return _keyword(field.name, None, Annotated[kind | None, option])


def _shown(default: Any) -> str:
    """The default of a field as its help shows it; nothing where the help says what happens without a value."""
    if default in (None, "", ()) or default is dataclasses.MISSING:
        return ""
    return f" [{'yes' if default is True else 'no' if default is False else default}]"


def _limits(about: Help) -> dict[str, Any]:
    """The limits of a number that the command line checks too."""
    return {} if about.least is None else {"min": about.least, "max": about.most}


def _same_fields(name: str, request: type) -> "Iterator[dataclasses.Field[Any]]":
    """The fields of that name, in every part of a request."""
    for part in parts_of(request):
        yield from (field for field in dataclasses.fields(part) if field.name == name)


def _is_given(name: str, value: Any, context: typer.Context) -> bool:
    """Whether a value was typed or is that of a settings file, even if it equals the default."""
    source = context.get_parameter_source(name)
    return value is not None and source is not None and source.name != "DEFAULT"


def _address(value: Any) -> Any:
    """An address as a text, which a `Path` cannot hold; or each of several."""
    return [_address(each) for each in value] if isinstance(value, list) else address_of(value) or str(value)


def _treatment(field: "dataclasses.Field[Any]") -> str | None:
    """What happens to an address in the value of a field."""
    return COPIED if option_name(field) in MODEL_PARAMETERS else field_help(field).address


def _names_models(field: "dataclasses.Field[Any]") -> bool:
    """Whether an option takes models, not files, as --also of `finetune` does."""
    return option_name(field) in MODEL_PARAMETERS and field_help(field).metavar != "FILE"


def _require_inputs(values: "Iterable[tuple[dataclasses.Field[Any], Any]]") -> None:
    """Checks the models, the files that are read and the names of devices and precisions that a command was given."""
    from bertsmith.base.machine.runtime import require_names

    for field, value in values:
        about, items = field_help(field), value if isinstance(value, list) else [value]
        is_argument = not (about.flag or "-").startswith("-") and about.flag != DESTINATION
        is_model = _names_models(field)
        if about.path == "the model" or (is_model and about.kind is not Path):
            require_inputs(map(str, items), ())
        elif about.path and (is_model or is_argument or about.address == COPIED):
            require_inputs((), items)
        elif about in (DEVICE, PRECISION):
            require_names(**{field.name: value}, inference=True)


def _settings_option(request: type[Request], exact: dict[str, Any]) -> Any:
    """The option that reads a settings file before the other options are read.

    Args:
        exact: receives the values that the command line has in another form, such as a table.
    """

    def read(context: typer.Context, path: Path | None) -> Path | None:
        exact.clear()  # of an earlier run of the command in this process
        if path is not None:
            values = from_file(request, path)
            for value in values.values():
                for each in value if isinstance(value, list) else [value]:
                    require_host(each)  # what is wrong with an address cannot be seen in a `Path`
            exact.update({name: value for name, value in values.items() if name in TYPED})
            context.default_map = {name: value for name, value in values.items() if name not in TYPED}
        return path

    return typer.Option(
        "--settings",
        metavar="FILE",
        help="a settings file (TOML) for options not given here; `bertsmith settings COMMAND` prints one",
        is_eager=True,
        callback=read,
    )
