"""Loaded models that answer about records, such as subjects with their visits or facts with a question.

`load` opens models that read texts, `open_model` these too. What such a model can do is a table of its abilities, named
after the functions of the library that give the same answers.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import quiet

if TYPE_CHECKING:
    from bertsmith.app.library.model import Model
    from bertsmith.tasks.encoding.row_encoder import Hooked

SHOWN_CODES = 5  # of each kind, as examples
FP32 = {
    "precision": ("fp32",),
    "products": ("auto", "plain"),
}  # of a model that torch alone computes, for `require_usual`


@dataclasses.dataclass(frozen=True, eq=False)
class ReadRecord:
    """A record as a model has read it.

    Attributes:
        tokens: the codes or words of it that count, those that are cut included.
        cut_tokens: those that do not fit into the model.
    """

    content: Any
    tokens: int
    cut_tokens: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class RecordAbility:
    """What a model answers about records.

    Attributes:
        read: checks the records of a request, which are plain values, and reads them.
        compute: the answers to the content of some of them, with the options of the request.
        remarks: sentences to read with answers, as the command prints them.
    """

    read: Callable[[Sequence[Any]], list[ReadRecord]]
    compute: Callable[..., Sequence[Any]]
    remarks: Callable[[Sequence[Any]], Iterable[str]] = lambda answers: ()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RecordModel:
    """A loaded model that answers about records; `read`, `compute` and what is not listed here are as in `Model`.

    Attributes:
        task: what it was trained for.
        table: its abilities by name.
        labels: the names of what it predicts.
        weakness: see `Model`.
        kinds: the kinds of codes that it reads, each with its most frequent codes.
        details: what is shown with codes, such as descriptions; how long they are bounds a reply.
        max_length: the most facts of a story that are read; 0 if the records have no such limit.
        width: of its vectors; 0 if it gives none.
        numbers: the most numbers of an answer, such as weights of attention, which bound a reply.
    """

    pair: ClassVar[None] = None
    tokenizer: ClassVar[None] = None
    embed_length: ClassVar[int] = 0
    max_question: ClassVar[int] = 0
    shows_attention: ClassVar[bool] = False
    shows_pieces: ClassVar[bool] = False

    name: str
    task: str
    table: Mapping[str, RecordAbility]
    hooked: "Sequence[Hooked]"
    device: str
    labels: tuple[str, ...] = ()
    weakness: str = ""
    kinds: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    details: tuple[str, ...] = ()
    max_length: int = 0
    width: int = 0
    numbers: int = 0

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of its abilities."""
        return tuple(self.table)

    def read(
        self, items: Sequence[Any], ability: str, *, prompt: str | None = None
    ) -> tuple[Sequence[ReadRecord], list[list[int]]]:
        """The records of a request as the model reads them, and the tokens of each."""
        records = self.table[ability].read(items)
        return records, [[record.tokens] for record in records]

    def compute(self, ability: str, items: Sequence[ReadRecord], **options: Any) -> Sequence[Any]:
        """The answers to records that `read` has read, of one request or of several with the same options."""
        with quiet():
            return self.table[ability].compute([record.content for record in items], **options)

    def note(self, ability: str, answers: Sequence[Any]) -> str:
        """What to read with the answers of a reply; "" if there is nothing."""
        return "; ".join(self.table[ability].remarks(answers))

    def reads_at_most(self, ability: str) -> int | None:
        """None: what is cut off is said by each record."""
        return None


class ModelWithRecords:
    """A model of texts that answers about records too; for what it says about itself, it is the model of texts.

    Args:
        records: its other abilities.
    """

    def __init__(self, texts: "Model", records: RecordModel) -> None:
        self._texts, self._records, self.note = texts, records, records.note
        self.kinds, self.details = records.kinds, records.details
        self.abilities: tuple[str, ...] = (*texts.abilities, *records.abilities)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._texts, name)

    def read(self, items: Sequence[Any], ability: str, **options: Any) -> tuple[Sequence[Any], list[list[int]]]:
        """The items of a request as the model reads them, and the tokens of each."""
        return self._of(ability).read(items, ability, **options)

    def compute(self, ability: str, items: Sequence[Any], **options: Any) -> Sequence[Any]:
        """The answers to items that `read` has read."""
        return self._of(ability).compute(ability, items, **options)

    def reads_at_most(self, ability: str) -> int | None:
        """See `Model`."""
        return self._of(ability).reads_at_most(ability)

    def _of(self, ability: str) -> "Model | RecordModel":
        return self._records if ability in self._records.abilities else self._texts


def require_usual(source: str | Path, options: Mapping[str, Any], usual: Mapping[str, Sequence[Any]]) -> None:
    """Returns if all options of `load` have a usual value, by default None, for a model that knows no others."""
    for name, value in options.items():
        if value not in usual.get(name, (None,)):
            raise ConfigError(
                expected=f"a model of texts for --{name}",
                found=f"another one in '{source}'",
                fix="leave that option out",
            )
