"""A vocabulary of codes: medical codes, actions, log events, products, clusters of feature vectors.

The ids of the special codes come first, then the codes in the order of their frequency. On disk it is a table with a
header, `codes.tsv`, with a code on each line; a code is known by its kind and its name::

    code    kind        count  description
    J06     diagnosis   812    Acute upper respiratory infections
    N02BE   medication  640    Anilides
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import VocabularyError, nearest
from bertsmith.base.storage.files import digest_bytes, require_file, write_text
from bertsmith.text.codes.visits import CodeKey, Subject, all_codes
from bertsmith.text.documents.encodings import decoded
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

FILE = "codes.tsv"
BREAK = "[>]"  # between the codes of two modalities, such as text and pictures
SPECIAL_CODES = (*SPECIAL_PIECES, BREAK)
_COLUMNS = ("code", "kind", "count", "description")


@dataclasses.dataclass(frozen=True)
class Code:
    """A code of a vocabulary.

    Attributes:
        count: how often it occurs, once per visit.
        description: what it means; may be empty.
    """

    name: str
    kind: str
    count: int = 0
    description: str = ""

    @property
    def key(self) -> CodeKey:
        """Its kind and name."""
        return self.kind, self.name


class CodeVocabulary:
    """Codes and their ids.

    Args:
        codes: in the order of their ids, which start behind those of the special codes.
        source: the name of this vocabulary in messages.

    Raises:
        VocabularyError: a code is empty, occurs twice in a kind, or has a tab or a line end.
    """

    pad_id, unk_id, cls_id, sep_id, mask_id, break_id = range(len(SPECIAL_CODES))

    def __init__(self, codes: Iterable[Code], *, source: str = "the vocabulary of codes") -> None:
        self.codes = tuple(codes)
        self.index: dict[CodeKey, int] = {}
        for id, code in enumerate(self.codes, start=len(SPECIAL_CODES)):
            problem = _problem(code) or ("a code that occurs twice" if code.key in self.index else "")
            if problem:
                raise VocabularyError(
                    expected=f"each code of a kind once, without tabs, in {source}",
                    found=f"{problem}: {code.name[:40]!r} of the kind {code.kind[:40]!r}",
                    fix="correct it",
                )
            self.index[code.key] = id

    def __len__(self) -> int:
        return len(SPECIAL_CODES) + len(self.codes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeVocabulary) and self.codes == other.codes

    def __hash__(self) -> int:
        return hash(self.codes)

    def __repr__(self) -> str:
        return f"CodeVocabulary({len(self.codes)} codes of the kinds {', '.join(self.kinds)})"

    @classmethod
    def of(
        cls,
        subjects: Iterable[Subject],
        *,
        minimum_count: int = 1,
        descriptions: Mapping[CodeKey, str] | None = None,
    ) -> "CodeVocabulary":
        """The vocabulary of the codes in visits, the most frequent ones first.

        Args:
            minimum_count: of the visits that a code is in.
        """
        counts = Counter(all_codes(subjects))
        texts = descriptions or {}
        often = sorted((-count, key) for key, count in counts.items() if count >= minimum_count)
        return cls(Code(key[1], key[0], -count, texts.get(key, "")) for count, key in often)

    @functools.cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of codes, in alphabetical order."""
        return tuple(sorted({code.kind for code in self.codes}))

    def id(self, key: CodeKey) -> int:
        """The id of a code; that of [UNK] for one that is not in the vocabulary."""
        return self.index.get(key, self.unk_id)

    def ids(self, keys: Iterable[CodeKey]) -> npt.NDArray[np.int64]:
        """The ids of codes, int64 in their order."""
        return np.array([self.id(key) for key in keys], dtype=np.int64)

    def ids_of_kind(self, kind: str) -> npt.NDArray[np.int64]:
        """The ids of all codes of a kind, ascending."""
        self.require_kind(kind)
        start = len(SPECIAL_CODES)
        return np.array([id for id, code in enumerate(self.codes, start=start) if code.kind == kind], dtype=np.int64)

    def code(self, id: int) -> Code:
        """The code with an id; a special code has an empty kind."""
        special = len(SPECIAL_CODES)
        return Code(SPECIAL_CODES[id], "") if id < special else self.codes[id - special]

    def require_kind(self, kind: str) -> None:
        """Checks that there are codes of a kind."""
        if kind not in self.kinds:
            raise VocabularyError(
                expected="a kind of codes in the vocabulary", found=repr(kind), fix=nearest(kind, self.kinds)
            )

    def part(self, kinds: Sequence[str]) -> "CodeVocabulary":
        """The vocabulary with the codes of some kinds only."""
        for kind in kinds:
            self.require_kind(kind)
        return CodeVocabulary(code for code in self.codes if code.kind in kinds)

    @functools.cached_property
    def text(self) -> str:
        """The content of its file."""
        rows = [_COLUMNS, *((code.name, code.kind, str(code.count), code.description) for code in self.codes)]
        return "".join("\t".join(row) + "\n" for row in rows)

    @property
    def digest(self) -> str:
        """The digest of its file."""
        return digest_bytes(self.text.encode("utf-8"))

    def save(self, path: Path) -> None:
        """Writes the table of the codes."""
        write_text(path, self.text)

    @classmethod
    def load(cls, path: Path | str) -> "CodeVocabulary":
        """The vocabulary of a table of codes, or of the folder that has it.

        Raises:
            InputError: there is no such file.
            VocabularyError: it is not a table of codes.
        """
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        require_file(file, "a vocabulary of codes")
        header, *lines = decoded(file.read_bytes(), name=str(file)).removesuffix("\n").split("\n")
        if tuple(header.split("\t")) != _COLUMNS:
            raise _not_a_row(file, 1, f"a header with the columns {', '.join(_COLUMNS)}", header)
        codes = []
        for number, line in enumerate(lines, start=2):
            cells = line.split("\t")
            if len(cells) != len(_COLUMNS) or not cells[2].isdecimal():
                raise _not_a_row(file, number, "a code, its kind, a count and a description, separated by tabs", line)
            codes.append(Code(cells[0], cells[1], int(cells[2]), cells[3]))
        return cls(codes, source=f"'{file}'")


def _problem(code: Code) -> str:
    """What is wrong with a code, in words; empty if nothing is."""
    if not code.name.strip() or not code.kind.strip():
        return "an empty name or kind"
    return "a tab or a line end" if set("\t\n\r") & set("".join((code.name, code.kind, code.description))) else ""


def _not_a_row(file: Path, line: int, expected: str, text: str) -> VocabularyError:
    return VocabularyError.at(f"line {line} of '{file}'", expected, repr(text[:60]), "restore the file")
