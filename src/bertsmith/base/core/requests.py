"""Requests: a frozen dataclass holds every parameter of a command, with its default, limits and help.

The command line, the signature of the library function, settings files, templates and docs/commands.md are made from
its fields. A request inherits from `Request` and from the settings classes that it consists of, its parts::

    @dataclasses.dataclass(frozen=True)
    class PretrainRequest(Request, PretrainingRunSettings, TrainSettings):
        corpus: Annotated[Path | str, Help("a folder that `bertsmith corpus` wrote")]
        out: Annotated[Path | str, Help("the run folder", metavar="RUN")]
        _: dataclasses.KW_ONLY
        resume: bool = help_field(False, "resume the run")

    @takes(PretrainRequest)
    def pretrain(request: PretrainRequest) -> TrainResult: ...

    pretrain("my-corpus", "my-run", steps=12)  # type checkers and editors know every name

A field that was not given has the default of its class; `given` says which were, since a recipe may set the others.
"""

import contextlib
import dataclasses
import functools
import inspect
import numbers
import os
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, ClassVar, ParamSpec, Self, TypeVar, get_args, get_origin

from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, nearest_path
from bertsmith.base.core.progress import worded
from bertsmith.base.core.settings import field_help, help_field, require, require_allowed, require_type
from bertsmith.base.core.tables import File, as_file, is_table, local_path
from bertsmith.base.core.version import __version__

# What a command does with an address in a field: reads a local copy, or reads or writes it there.
COPIED, AS_IT_IS = "copied", "as it is"
# An option, and after it a quoted path or a word that can be its value, because no sentence continues with it.
_CONTINUES = (
    "a|again|alone|an|and|as|does|file|files|for|has|if|in|instead|is|keeps|needs|next|of|or|other|out|several|that|the|"
    "to|with|would"
)
_QUOTED_OR_OPTION = re.compile(
    rf"`[^`]*`|(?<![\w-])--(\w[\w-]*)(?: ('[^']*'|(?!(?:{_CONTINUES})\b)\w(?:[\w.:/+-]|,(?=\w))*\b(?!=)))?"
)
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]\d+)?")
_OPTIONS_ARE_NAMED = ContextVar("whether messages are for the command line", default=False)
Parameters = ParamSpec("Parameters")
Asked = TypeVar("Asked", bound="Request")
Result = TypeVar("Result")


class Request:
    """The parameters of a command, checked when they are made.

    Attributes:
        given: the names of the fields that were given; the others have their defaults.
        aside: fields that a settings file does not hold, because they are about a single start of the command.
        completed: parts that a recipe completes before they can be checked.
        usual: by field name, the values of the command in place of the defaults of a part; None where one depends on
            other settings.
        addresses: by field name, the addresses that were given in place of local copies, and what tables in memory were
            given in place of files, for the record.
    """

    given: ClassVar[frozenset[str]]
    usual: ClassVar[Mapping[str, Any]] = {}
    addresses: ClassVar[Mapping[str, Any]] = {}
    aside: ClassVar[tuple[str, ...]] = ("resume", "replace")
    completed: ClassVar[tuple[type, ...]] = ()

    def __new__(cls, *arguments: Any, **values: Any) -> Self:
        """An instance that knows which fields were given."""
        request = super().__new__(cls)
        names = [field.name for field in dataclasses.fields(cls) if not field.kw_only]  # type: ignore[arg-type]
        object.__setattr__(request, "given", frozenset((*names[: len(arguments)], *values)))
        return request

    def __post_init__(self) -> None:
        """Checks the values that were given: their types, limits and paths, then what each part checks itself."""
        for source, field in all_fields(type(self)):
            value, about = getattr(self, field.name), field_help(field)
            if _is_sequence(field):
                value = as_list(value)
            elif isinstance(value, numbers.Number) and hasattr(value, "item"):  # of NumPy
                value = value.item()
            elif about.table and field.name in self.given and is_table(value):
                table = as_file(value, field.name)
                value = table.path
                self.copied_from({**self.addresses, field.name: table})
            object.__setattr__(self, field.name, value)
            if field.name not in self.given or (value is None and field.default is None):
                continue
            if source is not type(self):
                require_type(field.name, _plain(value), field.type)
            elif about.path:
                is_several = _is_sequence(field)
                if is_several:
                    require_type(field.name, value, field.type)
                for path in value if is_several else [value]:
                    require_path(path, about.path if isinstance(about.path, str) else field.name)
            else:
                require_type(field.name, value, field.type)
                require_allowed(field, value)
        for part in parts_of(type(self)):
            if part not in self.completed:
                self.part(part)

    def values(self, part: type) -> dict[str, Any]:
        """The values of a part that were given, by field name; paths as text."""
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(part)
            if field.name in self.given
        }

    def part(self, part: type[Result]) -> Result:
        """A part as an object of its own class; what was not given has the default of that class."""
        return part(**self.values(part))

    def arguments(self, function: Callable[..., Any]) -> dict[str, Any]:
        """The values that were given and that a function has parameters for, by name; paths as text."""
        names = self.given & inspect.signature(function).parameters.keys()
        return {name: _plain(getattr(self, name)) for name in sorted(names)}

    def replaced(self, **values: Any) -> Self:
        """The request with other values."""
        request = type(self)(**{**{name: getattr(self, name) for name in self.given}, **values})
        return request.copied_from({name: self.addresses[name] for name in self.addresses.keys() - values.keys()})

    def copied_from(self, addresses: Mapping[str, Any]) -> Self:
        """The request itself, with the addresses whose local copies it has."""
        object.__setattr__(self, "addresses", addresses)
        return self


def as_list(values: Any) -> Any:
    """The values of an array or of a column of a table as a list; anything else as it is."""
    if isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray | memoryview | list | tuple):
        return list(values)  # a column of a data set of Hugging Face
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    plain = array.tolist() if hasattr(array, "tolist") else None
    return plain if isinstance(plain, list) else values


def require_path(path: object, name: str) -> None:
    """Raises InputError unless `path` is a text or a path, and not empty; `name` is used in the message."""
    kind = type(path).__name__
    if not isinstance(path, str | os.PathLike):
        raise InputError(expected=f"{name} as a path", found=f"a value of type {kind}", fix="give a str or a Path")
    if not os.fspath(path):
        raise InputError(expected=f"{name} as a path", found="an empty text", fix="name a file or folder")


def file_field(help: str, metavar: str = "FILE", *, table: bool = False) -> Any:
    """A field, by default None, for the path of a file or folder that is read; of an address, a local copy is read."""
    return help_field(None, help, metavar=metavar, path=True, address=COPIED, kind=Path, table=table)


def path_field(help: str, metavar: str = "FILE", *, path: str | bool = True, kind: type = Path) -> Any:
    """A field, by default None, for the path of a file or folder on this machine.

    Args:
        path: its name in messages, in place of that of the field.
        kind: str for a model, which may be the id of one on a hub.
    """
    return help_field(None, help, metavar=metavar, path=path, kind=kind)


def path_or_none(path: File | None) -> Path | None:
    """The path, or None where none was given."""
    return None if path is None else local_path(path)


def parts_of(request: type) -> tuple[type, ...]:
    """The settings classes that a request consists of."""
    bases = [base for kind in _requests(request) for base in kind.__bases__]
    return tuple(
        base for base in dict.fromkeys(bases) if dataclasses.is_dataclass(base) and not issubclass(base, Request)
    )


def _requests(request: type) -> list[type]:
    """A request and the requests that it extends."""
    return [kind for kind in request.__mro__ if issubclass(kind, Request) and kind is not Request]


def _is_sequence(field: "dataclasses.Field[Any]") -> bool:
    """Whether the values of a field are lists."""
    return get_origin(plain_type(field.type)) is Sequence


def _is_table(field: "dataclasses.Field[Any]") -> bool:
    """Whether a value of a field can be a table."""
    return any(get_origin(kind) is Mapping for kind in (field.type, *get_args(field.type)))


def own_fields(request: type) -> "list[dataclasses.Field[Any]]":
    """The fields that a request adds to those of its parts, required ones first; then those of a request it extends."""
    names = [name for kind in _requests(request) for name in kind.__annotations__]
    fields = [field for field in dataclasses.fields(request) if field.name in names]
    return sorted(fields, key=lambda field: -1 if field.default is dataclasses.MISSING else names.index(field.name))


def all_fields(request: type) -> "Iterator[tuple[type, dataclasses.Field[Any]]]":
    """Every field of a request, with the class that defines it: its own, then those of each part, each name once."""
    seen: set[str] = set()
    for source in (request, *parts_of(request)):
        for field in own_fields(source) if source is request else dataclasses.fields(source):
            if field.name not in seen:
                seen.add(field.name)
                yield source, field


def option_name(field: "dataclasses.Field[Any]") -> str:
    """The name of a field as an option, without hyphens."""
    flag = (field_help(field).flag or "").partition("/")[0]
    return flag.removeprefix("--").replace("-", "_") if flag.startswith("--") else field.name


def takes(
    request: Callable[Parameters, Asked],
) -> Callable[[Callable[[Asked], Result]], Callable[Parameters, Result]]:
    """Decorator: a function of a request becomes a function of its fields, with their help in its docstring.

    The function takes the fields that are not keyword-only by position too; `call` passes it a request as it is. A
    field whose option has another name may be given by that name. What errors say about options they say about
    parameters, except to the command line.
    """
    kind: type = request  # type: ignore[assignment]
    # The first of several classes with a field of that name defines it, and all their fields are parameters.
    known = {field.name: field for _, field in all_fields(kind)}
    of_option = {option_name(field): name for name, field in known.items()} | {name: name for name in known}

    signature = inspect.signature(kind)
    plain = [
        parameter.replace(annotation=plain_type(parameter.annotation)) for parameter in signature.parameters.values()
    ]

    def decorate(function: Callable[[Asked], Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def called(*arguments: Parameters.args, **values: Parameters.kwargs) -> Result:
            for name in values:
                if name not in of_option:
                    raise ConfigError.unknown("setting", name, known)
                if name not in known and of_option[name] in values:
                    raise ConfigError(
                        expected="each setting once",
                        found=f"{name} and {of_option[name]}, which are the same",
                        fix=f"leave {name} out",
                    )
            by_field: dict[str, Any] = {of_option[name]: value for name, value in values.items()}
            _require_arguments(function.__name__, signature, known, arguments, by_field)
            with parameters_named(known.values()):
                return function(request(*arguments, **by_field))

        returned = inspect.signature(function).return_annotation
        called.__signature__ = signature.replace(parameters=plain, return_annotation=returned)  # type: ignore[attr-defined]
        called.__annotations__ = {}
        called.__doc__ = _documented(inspect.getdoc(function) or "", kind)
        return called

    return decorate


def _require_arguments(
    function: str,
    signature: inspect.Signature,
    fields: "Mapping[str, dataclasses.Field[Any]]",
    arguments: Sequence[Any],
    values: Mapping[str, Any],
) -> None:
    """Raises ConfigError unless a call has each argument that it needs, and each once."""
    parameters = signature.parameters.values()
    in_order = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    required = [each.name for each in parameters if each.default is each.empty]
    expected = f"{function}({', '.join(required)}{', ...' * (len(signature.parameters) > len(required))})"
    if len(arguments) > len(in_order):
        raise ConfigError(
            expected=expected,
            found=f"{len(arguments)} arguments without a name",
            fix="write the others as name=value",
        )
    by_order = in_order[: len(arguments)]
    if twice := [name for name in by_order if name in values]:
        raise ConfigError(expected=expected, found=f"{twice[0]} twice", fix="give it by its place or by its name")
    if missing := [name for name in required if name not in {*by_order, *values}]:
        about = field_help(fields[missing[0]])
        help = textwrap.shorten(with_parameters(about.library or about.help, fields.values()), 100, placeholder=" ...")
        raise ConfigError(expected=expected, found=f"no {' and no '.join(missing)}", fix=f"give {missing[0]}: {help}")


def call(function: Callable[..., Result], request: Request) -> Result:
    """The result of a function that `takes` decorated, for a request."""
    return function.__wrapped__(request)  # type: ignore[attr-defined, no-any-return]


def _documented(text: str, request: type) -> str:
    """A docstring with the help of every field, before the section about errors; options are named as parameters."""
    lines = ["Args:"]
    fields = [field for _, field in all_fields(request)]
    for field in fields:
        about = field_help(field)
        shown = with_parameters(about.library or about.help, fields)
        entry = f"{field.name}: {shown}{'; or a table in memory' if about.table else ''}"
        lines += textwrap.wrap(entry, 112, initial_indent="    ", subsequent_indent="        ", break_long_words=False)
    before, separator, after = text.partition("\nRaises:")
    return "\n".join((before.rstrip(), "", *lines, "")) + separator + after


@contextlib.contextmanager
def options_named() -> Iterator[None]:
    """A context for the command line: errors of functions that are called in it name options, not parameters."""
    token = _OPTIONS_ARE_NAMED.set(True)
    try:
        yield
    finally:
        _OPTIONS_ARE_NAMED.reset(token)


@contextlib.contextmanager
def parameters_named(fields: "Iterable[dataclasses.Field[Any]]") -> Iterator[None]:
    """A context in which errors, and lines to stderr, name parameters of the library in place of options.

    It is also a decorator of functions.
    """
    if _OPTIONS_ARE_NAMED.get():
        yield
        return

    def wording(text: str) -> str:
        return with_parameters(text, fields)

    try:
        with worded(wording):
            yield
    except BertsmithError as error:
        error.reword(wording)
        raise


def with_parameters(text: str, fields: "Iterable[dataclasses.Field[Any]]") -> str:
    """A text in which the options of some fields are named as parameters, as they are in the library.

    Where the text gives an option a value, so does the parameter: `--keep best` is `keep="best"`.
    """
    known: dict[str, tuple[dataclasses.Field[Any], bool]] = {}
    for field in fields:
        option, negated = option_name(field).replace("_", "-"), (field_help(field).flag or "").partition("/")[2]
        known |= {negated.removeprefix("--") or f"no-{option}": (field, False), option: (field, True)}

    def parameter(match: "re.Match[str]") -> str:
        option, value = match[1], match[2] or ""
        if option not in known:
            return match[0]
        field, is_on = known[option]
        kinds = get_args(plain_type(field.type)) or (plain_type(field.type),)
        after = f" {value}" if value else ""
        if bool in kinds:
            return f"`{field.name}={is_on}`{after}"
        if value.isupper():  # a metavariable, such as FILE
            return f"`{field.name}=...`"
        is_path, is_number = value.startswith("'") and Path in kinds, _NUMBER.fullmatch(value)
        if is_path or (is_number and str not in kinds):
            return f"`{field.name}={value}`"
        is_text = value[:1].isalnum() and str in kinds
        return f'`{field.name}="{value}"`' if is_text else f"`{field.name}`{after}"

    return _QUOTED_OR_OPTION.sub(parameter, text)


def from_file(request: type[Request], path: Path | str) -> dict[str, Any]:
    """The values in a settings file (TOML) by field name; the file has the names of the options, and tables group them.

    In a path `~` is the home folder, as in a shell. What a template leaves empty for want of a default is not given.
    """
    require(
        Path(path).exists(),
        expected=f"a settings file at '{path}'",
        found="none",
        fix=nearest_path(path) or "check the path",
    )
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also of a number of thousands of digits
        raise InputError(expected=f"TOML in '{path}'", found=str(error), fix="correct the file") from None
    fields = {option_name(field): field for _, field in all_fields(request)}
    options = {field.name: option for option, field in fields.items() if field.name not in fields and _is_table(field)}
    known = {name: field for name, field in fields.items() if is_of_file(field, request)}
    values: dict[str, Any] = {}
    for name, value in _flattened(content, {**known, **{name: fields[option] for name, option in options.items()}}):
        if name in options:
            raise ConfigError(expected=f"the names of options in '{path}'", found=name, fix=f"write {options[name]}")
        if name in fields and name not in known:
            fix = "leave it out" if field_help(fields[name]).in_library_only else f"give --{name} on the command line"
            raise ConfigError(expected=f"settings that a file may hold in '{path}'", found=name, fix=fix)
        if name not in known:
            raise ConfigError.unknown(f"setting of bertsmith {__version__} in '{path}':", name, known)
        field = known[name]
        if field.name in values:
            raise ConfigError(expected=f"each setting once in '{path}'", found=f"{name} twice", fix="remove one")
        require_type(f"{name} in '{path}'", value, str | Path if field_help(field).table else field.type)
        if is_required(field) and value in ("", []):
            continue
        values[field.name] = _home(value, f"{name} in '{path}'") if field_help(field).path else value
    return values


def is_required(field: "dataclasses.Field[Any]") -> bool:
    """Whether the command line cannot do without a field."""
    return field.default is dataclasses.MISSING or field_help(field).required


def shown_of(field: "dataclasses.Field[Any]", request: type[Request]) -> tuple[str, Any]:
    """The help and the default of a field; those of a recipe, which `usual` replaces, are left out of the help."""
    help = field_help(field).help
    if field.name not in request.usual:
        return help, field.default
    return help.partition("; auto:")[0], request.usual[field.name]


def is_of_file(field: "dataclasses.Field[Any]", request: type[Request]) -> bool:
    """Whether a settings file may hold a field."""
    about = field_help(field)
    return field.name not in request.aside and not (about.no_setting or about.in_library_only)


def _home(path: Any, name: str) -> Any:
    """A path, or each of several, with the home folder in place of `~`."""
    if isinstance(path, list):
        return [_home(each, name) for each in path]
    require_path(path, name)
    return os.path.expanduser(path)


def _flattened(content: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of a document; a table that is not a value of a field is a group."""
    for name, value in content.items():
        if isinstance(value, dict) and not (name in known and _is_table(known[name])):
            yield from _flattened(value, known)
        else:
            yield name, value


def template(request: type[Request], topics: Mapping[str, str]) -> Iterator[str]:
    """The lines of a settings file with every setting, its help and its default, as comments where it has one."""
    heading = ""
    listed = [(topics.get(source.__name__, ""), field) for source, field in all_fields(request)]
    for topic, field in sorted(listed, key=lambda pair: bool(pair[0])):  # what is in no table comes before the tables
        if not is_of_file(field, request):
            continue
        if topic != heading:
            heading = topic
            yield f"[{topic.lower().replace(' ', '-')}]"
            yield ""
        about, default = shown_of(field, request)
        yield from (f"# {line}" for line in textwrap.wrap(about, 100, break_on_hyphens=False))
        if is_required(field):
            yield f"{option_name(field)} = {'[]' if _is_sequence(field) else as_toml('')}"
        else:
            yield f"# {option_name(field)} = {'' if default is None else as_toml(_plain(default))}".rstrip()
        yield ""


def to_file(request: Request) -> str:
    """The values that were given, as the text of a settings file."""
    lines = [
        f"{option_name(field)} = {as_toml(_plain(request.addresses.get(field.name, getattr(request, field.name))))}"
        for _, field in all_fields(type(request))
        if field.name in request.given and is_of_file(field, type(request)) and getattr(request, field.name) is not None
    ]
    return "".join(f"{line}\n" for line in lines)


def as_toml(value: Any) -> str:
    r"""A value as TOML: texts, numbers, booleans, lists of them, and tables of texts.

    >>> as_toml({"1": "Claim"}), as_toml([0.5, True]), as_toml("a\n")
    ('{"1" = "Claim"}', '[0.5, true]', '"a\\n"')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(letter if letter.isprintable() else _escape(letter) for letter in escaped) + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{as_toml(str(key))} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    return float.__repr__(value) if isinstance(value, float) else repr(value)  # NumPy's are floats too


def _escape(letter: str) -> str:
    """A character that a basic string of TOML may not hold as it is."""
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(letter, f"\\U{ord(letter):08x}")


def _plain(value: Any) -> Any:
    """A value with paths as text."""
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def plain_type(annotation: Any) -> Any:
    """The type of an annotation without what `Annotated` adds."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
