"""Plans the loading of a checkpoint: accounts for every name and checks every shape before any tensor is read.

Problems of all kinds are reported at once. A name is mapped, skipped on purpose (with the reason), or unknown; a
parameter is present or missing. Unknown names are an error unless the caller allows them, because a model that silently
lost its head scores like one that never learned.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import CheckpointError, some
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.head_inputs import HIDDEN_UNITS, READER_UNITS
from bertsmith.models.parts.parameter_names import Match, ParameterNames, Skip, block_shapes
from bertsmith.models.parts.part_names import BLOCKS, DECODER, OWN_HEAD, PARTS, READER, part_of

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]

POSITIONS, WORD_TABLE = "bert.embeddings.position.weight", "bert.embeddings.word.weight"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadReport:
    """How each name in a checkpoint was handled.

    Attributes:
        mapped: stored name to our name.
        skipped: stored name to the reason for skipping it.
        unknown: stored names that are unknown here; they are not loaded.
        missing: parts of the full model that are not in the checkpoint, such as "mlm".
    """

    source: str
    mapped: dict[str, str]
    skipped: dict[str, str]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report as lines of text; unknown names are listed one by one, skipped ones are counted by reason."""
        missing = [f"parts that this model does not have: {', '.join(self.missing)}"] if self.missing else []
        return [f"{self.source}: {len(self.mapped)} tensors mapped", *self.remarks(), *missing]

    def remarks(self) -> list[str]:
        """The lines about tensors that are not read as they are; none for most models."""
        reasons = sorted(set(self.skipped.values()))
        counts = [f"{list(self.skipped.values()).count(reason)} {reason}" for reason in reasons]
        lines = [f"skipped: {', '.join(counts)}"] if counts else []
        lines += [f"unknown, not loaded: {name}" for name in self.unknown]
        return lines + [f"note: {note}" for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def with_notes(self, *notes: str) -> "LoadReport":
        """The same report with more notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))


@dataclasses.dataclass(frozen=True)
class LoadingPlan:
    """Which stored tensor provides which parameter.

    Attributes:
        take: our name to (stored name, whether to transpose).
        copies: (stored name, stored name, our name) of tensors that must have the same values.
    """

    take: dict[str, tuple[str, bool]]
    copies: list[tuple[str, str, str]]
    report: LoadReport


def plan_loading(
    stored: Mapping[str, Shape],
    translate: Callable[[str], Match | Skip | None],
    config: EncoderConfig,
    names: ParameterNames,
    source: str,
    *,
    name_there: Callable[[str], str] = str,
    allow_unknown: bool = False,
    vectors_of_row: int = 1,
) -> LoadingPlan:
    """The plan for loading a checkpoint whose tensors have these names and shapes.

    Args:
        translate: returns the meaning of a stored name, such as `from_google`.
        name_there: returns the stored name for one of ours, for error messages; by default the same name.
    """
    # The configuration is not trusted either: listing the tensors of a billion layers would exhaust memory.
    if config.num_distinct_layers > max(len(stored), 1):
        raise CheckpointError(
            expected=f"the tensors of {config.num_distinct_layers} layers in {source}",
            found=f"{len(stored)} tensors in total",
            fix="check that configuration and weights belong together",
        )
    take: dict[str, tuple[str, bool]] = {}
    mapped: dict[str, str] = {}
    skipped: dict[str, str] = {}
    unknown: list[str] = []
    copies: list[tuple[str, str, str]] = []
    second: list[tuple[str, Match]] = []
    twice: list[str] = []

    for name in stored:
        match translate(name):
            case Match() as known if known.copy:
                second.append((name, known))
            case Match() as known if known.ours == POSITIONS and config.position_embedding_type != "absolute":
                skipped[name] = "a table that this configuration computes"
            case Match() as known if known.ours in take:
                twice.append(f"{take[known.ours][0]} and {name} are the same parameter")
            case Match() as known:
                take[known.ours] = (name, known.transposed)
                mapped[name] = known.ours
            case Skip(reason):
                skipped[name] = reason
            case None:
                unknown.append(name)
    for name, known in second:
        if known.ours in take:
            copies.append((take[known.ours][0], name, known.ours))
            skipped[name] = "a copy of a parameter"
        else:
            take[known.ours] = (name, known.transposed)
            mapped[name] = known.ours

    shapes, missing = _expected(take, stored, config, names, vectors_of_row)
    prefixes = (names.prefix, "bert/")
    absent = [f"no {_as_stored(name_there(ours), stored, prefixes)}" for ours in shapes if ours not in take]
    foreign: list[str] = []
    wrong: list[str] = []
    for ours, (name, transposed) in take.items():
        if ours not in shapes:
            foreign.append(f"{name} does not belong to any part of this configuration")
            continue
        shape = shapes[ours][::-1] if transposed else shapes[ours]
        if stored[name] != shape:
            wrong.append(f"{name} is {list(stored[name])} instead of {list(shape)}")
    wrong += [
        f"{name} is {list(stored[name])} instead of {list(stored[first])}"
        for first, name, _ in copies
        if stored[first] != stored[name]
    ]
    extra = [] if allow_unknown else [f"unknown {name}" for name in unknown]
    if problems := [some(group, "; ") for group in (twice, absent, foreign, wrong, extra) if group]:
        raise CheckpointError(
            expected=f"the {len(shapes)} tensors of a {config.display_name} with "
            f"{config.num_hidden_layers} layers of width {config.hidden_size} in {source}",
            found="; ".join(problems),
            fix="check that configuration and weights belong together"
            + (
                " (`bertsmith convert --to huggingface --allow-unknown` writes a folder without the unknown ones; "
                "in Python, allow_unknown=True skips them)"
                if unknown and not allow_unknown
                else ""
            ),
        )
    report = LoadReport(source=source, mapped=mapped, skipped=skipped, unknown=tuple(unknown), missing=missing)
    return LoadingPlan(take, copies, report)


def fixed_positions(config: EncoderConfig, tensors: "Mapping[str, Tensor]") -> "Tensor":
    """The position table [P, D] of a model with sinusoidal positions or none, for tools that need a table."""
    from bertsmith.models.parts.layers import sinusoidal_positions

    word = tensors[WORD_TABLE]
    if config.position_embedding_type == "none":
        return word.new_zeros(config.max_position_embeddings, config.hidden_size)
    return sinusoidal_positions(config.max_position_embeddings, config.hidden_size).to(word)


def _as_stored(name: str, stored: Iterable[str], prefixes: tuple[str, ...]) -> str:
    """The name, without the prefix of the encoder if no stored name has it."""
    is_bare = not any(other.startswith(prefixes) for other in stored)
    for prefix in prefixes:
        name = name.removeprefix(prefix) if is_bare else name
    return name


def _expected(
    take: Mapping[str, tuple[str, bool]],
    stored: Mapping[str, Shape],
    config: EncoderConfig,
    names: ParameterNames,
    vectors_of_row: int,
) -> tuple[dict[str, Shape], tuple[str, ...]]:
    """The required shapes, including every part with at least one tensor, and the absent parts."""
    shapes: dict[str, Shape] = dict(names.required_shapes(config))
    present = {part_of(ours) for ours in take}
    for part in names.parts:
        if part in present:
            labels = {stored[take[ours][0]][0] for ours in take if part_of(ours) == part and stored[take[ours][0]]}
            # If weight and bias disagree, the larger one is expected, so that the other one is reported.
            shapes |= names.part_shapes(part, config, max(labels, default=0), vectors_of_row)
    if BLOCKS in present:
        shapes |= block_shapes(config.hidden_size * vectors_of_row)
        if "classifier.weight" in shapes:
            shapes["classifier.weight"] = (shapes["classifier.weight"][0], HIDDEN_UNITS)
    # Only the class of a user's head knows its shapes, and only the task those of a reader or a decoder.
    shapes |= {ours: stored[name] for ours, (name, _) in take.items() if part_of(ours) in (OWN_HEAD, READER, DECODER)}
    if READER in present:
        # One of whole texts ends with a hidden layer, one of tokens with two LSTMs, which have four gates for a cell,
        # and one of sentences with a Transformer layer.
        gates = shapes.get(f"{READER}.second.right.bias_ih_l0", (2 * config.hidden_size,))[0]
        width = READER_UNITS if f"{READER}.hidden.weight" in shapes else gates // 2
        for ours in {"classifier.weight", "span.weight"} & shapes.keys():
            shapes[ours] = (shapes[ours][0], width)
    return shapes, tuple(part for part in PARTS if part in names.parts and part not in present)
