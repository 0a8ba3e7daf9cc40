"""The one rule for outputs of commands: what may be replaced, and by what.

An output is never one of the inputs, never another output of the same command, and never replaces a file of another
kind. A file of the same kind is replaced on request only. Each kind says what its files look like: the ending of the
name, where tools depend on it, and the first bytes.
"""

import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.storage.files import require_file_place

STDIN = "-"
_HEAD_BYTES = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class FileKind:
    """A kind of file that a command writes, and how to recognize one.

    Attributes:
        endings: the endings that the name of such a file may have; empty if any will do.
        starts: the first bytes of such a file, any of them, without regard to case or white space before them.
        holds: bytes that are all among its first 65,536 bytes.
        matches: a regular expression that is found there, NUL characters aside, which UTF-16 has between others.
    """

    name: str
    endings: tuple[str, ...] = ()
    starts: tuple[bytes, ...] = ()
    holds: tuple[bytes, ...] = ()
    matches: bytes = b""

    def fits(self, path: Path) -> bool:
        """True if the file at `path` is of this kind, empty, or cut off before that can be seen."""
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
        start = head.removeprefix(_BYTE_ORDER_MARK).lstrip().lower()
        known = [sign.lower() for sign in self.starts]
        is_start = not known or start.startswith(tuple(known)) or any(sign.startswith(start) for sign in known)
        is_found = all(sign in head for sign in self.holds) and re.search(self.matches, head.replace(b"\0", b""))
        return not head or (is_start and bool(is_found))


# A vocabulary has [UNK] on a line of its own; in the published ones it is line 1 or line 101.
VOCABULARY = FileKind("a vocabulary", holds=(b"[UNK]\n",))
TOKENIZER_FILE = FileKind("a tokenizer.json", endings=(".json",), holds=(b'"added_tokens"',))
VOCABULARY_REPORT = FileKind("a vocabulary report", starts=(b'{\n  "texts":',))
PAGE = FileKind("an HTML page", endings=(".html",), starts=(b"<!doctype html",))
VECTOR_CHANGES = FileKind("saved vector changes", holds=(b'"vector changes"',))
PASSAGE_VECTORS = FileKind("passage vectors", holds=(b'"passage vectors"',))
INDEX_MANIFEST = FileKind("the manifest of an index", holds=(b'"kind": "bertsmith index"',))
INDEX_ADDITION = FileKind("what is being added to an index", holds=(b'"rows_per_segment"',))
VECTOR_RECORD = FileKind("the record of a vector file", starts=(b'{\n  "stage":',))
TOKEN_LINES = FileKind("the words of a vector file", starts=(b'{"line":',))
TOKEN_FEATURES = FileKind("token vectors", endings=(".jsonl",), starts=(b'{"linex_index":',))
PREDICTION_TABLE = FileKind("a table of predictions", endings=(".csv",), matches=rb"[,;\t]prediction\b")
EVENT_TABLE = FileKind("a table of events", endings=(".csv",), starts=(b"subject,time,code",))
FEATURE_WORDS = FileKind("feature words", endings=(".safetensors",), holds=(b'"bertsmith feature words"',))
PREDICTIONS = FileKind("predictions", endings=(".jsonl",), starts=(b'{"id":',))
GLOSS_PAIRS = FileKind("pairs of texts and glosses", endings=(".csv",), starts=(b"text,pair,label",))
ANSWERS = FileKind("answers for the GLUE server", starts=(b"index\tprediction",))
VECTORS = {
    ".npy": FileKind("vectors", endings=(".npy",), starts=(b"\x93numpy",)),
    ".parquet": FileKind("vectors", endings=(".parquet",), starts=(b"PAR1",)),
    ".npz": FileKind("sparse vectors", endings=(".npz",), starts=(b"PK",)),
}
PICTURES = {
    ".png": FileKind("a picture", endings=(".png",), starts=(b"\x89PNG",)),
    ".svg": FileKind("a picture", endings=(".svg",), starts=(b"<svg", b"<?xml")),
    ".html": PAGE,
}


def require_output(
    path: Path,
    kind: FileKind,
    *,
    inputs: Iterable[Path | str | None] = (),
    others: Iterable[Path | None] = (),
    replace: bool = False,
    may_exist: bool = False,
) -> None:
    """Checks that a file may be written to `path`, before any work goes into its content.

    Args:
        inputs: the files and folders of data that the command reads; a file in an input folder is an input. A model
            folder need not be listed, because none of its files is of a kind that is written as a single file.
        replace: an existing file of this kind may be replaced, as the user asked.
        may_exist: the same, for a file whose name the program chose or which it extends.
    """
    _require_ending(path, kind)
    require_file_place(path)
    for source in inputs:
        if source is not None and str(source) != STDIN and _is_part(path, Path(source)):
            raise InputError(
                expected=f"an output apart from the input '{source}'", found=f"'{path}'", fix="choose another file"
            )
    for other in others:
        if other is not None and _is_same(path, other):
            raise InputError(
                expected="a different file for each output", found=f"'{path}' twice", fix="choose another file"
            )
    if not path.exists():
        return
    if not kind.fits(path):
        raise InputError(
            expected=f"{kind.name} or nothing at '{path}', since no other file is replaced",
            found="a file of another kind",
            fix="choose another file",
        )
    if not (replace or may_exist):
        raise InputError(
            expected=f"no file at '{path}'", found="one", fix="choose another file, or overwrite it with --replace"
        )


def _require_ending(path: Path, kind: FileKind) -> None:
    ending = path.suffix.lower()
    if kind.endings and ending not in kind.endings:
        raise InputError(
            expected=f"{kind.name} with a name that ends in {' or '.join(kind.endings)}",
            found=f"'{path.name}'",
            fix=nearest(ending, kind.endings) if ending else "add the ending",
        )


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths name one file: by links in the path, by hard links, or literally."""
    if os.path.realpath(path) == os.path.realpath(other):
        return True
    return path.exists() and other.exists() and os.path.samefile(path, other)


def _is_part(path: Path, source: Path) -> bool:
    """Whether a path is an input, or a file that exists in an input folder."""
    if _is_same(path, source):
        return True
    if not (path.exists() and source.is_dir()):
        return False
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(source)):
        return True
    inside = (Path(folder, name) for folder, _, names in os.walk(source) for name in names)
    return path.stat().st_nlink > 1 and any(os.path.samefile(path, file) for file in inside if file.exists())
