"""Tables of static vectors in the layouts of other tools: a `StaticEmbedding` of sentence-transformers, and Model2Vec.

Both have a `tokenizer.json` of any kind and one file of weights; the vector of a text is the mean of those of its
pieces, which no special tokens surround. In Model2Vec's, a vocabulary may share rows of the table (`mapping`), and
pieces may have weights.

Letters: V pieces, R rows of the table, D width.

Source: Tulkens and van Dongen (2024), Model2Vec; `StaticModel` of that package, version 0.10; `StaticEmbedding` of
sentence-transformers.
"""

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.finite import first_not_finite
from bertsmith.base.storage.files import read_object
from bertsmith.models.checkpoints.weights import read_arrays
from bertsmith.models.model_files.row_json import PIPELINE
from bertsmith.models.model_files.static_layouts import MODEL2VEC, STATIC_EMBEDDING, is_model2vec
from bertsmith.models.model_files.tokenizer_files import read_unmarked
from bertsmith.text.tokenizers.tokenizer import Tokenizer

Table = npt.NDArray[np.float32]
_LONGEST = 512  # tokens of a text, if a folder of Model2Vec does not say


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class StaticFolder:
    """A table of vectors with its tokenizer.

    Attributes:
        vectors: of the pieces, float32 [V, D].
        ignored: the piece that does not count; None for none.
        max_tokens: of a text; None for any number.
    """

    path: Path
    vectors: Table
    tokenizer: Tokenizer
    ignored: int | None = None
    max_tokens: int | None = None


def read_static_folder(folder: Path) -> StaticFolder:
    """The table and the tokenizer of a folder of either layout."""
    tokenizer, path = read_unmarked(folder), folder / PIPELINE
    vectors = _vectors(folder, len(tokenizer.vocabulary))
    if is_model2vec(folder):
        said = read_object(folder / "config.json")
        longest = said.get("max_length", _LONGEST)
        if longest is not None and (type(longest) is not int or longest < 1):
            raise CheckpointError(
                expected=f"a whole number above 0, or null, as max_length in '{folder / 'config.json'}'",
                found=repr(longest)[:60],
                fix="correct it",
            )
        if longest is not None:
            tokenizer.max_characters = longest * int(statistics.median(map(len, tokenizer.vocabulary.pieces)))
        return StaticFolder(
            path=folder,
            vectors=vectors,
            tokenizer=tokenizer,
            ignored=_unknown(path),
            max_tokens=longest,
        )
    cut = read_object(path).get("truncation")
    cuts = cut if isinstance(cut, dict) else {"max_length": cut}
    longest = cuts.get("max_length")
    if longest is not None and (type(longest) is not int or longest < 1 or cuts.get("direction", "Right") != "Right"):
        raise CheckpointError(
            expected=f"a truncation at the end of texts in '{path}'", found=repr(cut)[:80], fix="write null"
        )
    return StaticFolder(path=folder, vectors=vectors, tokenizer=tokenizer, max_tokens=longest)


def _vectors(folder: Path, pieces: int) -> Table:
    """The vectors of the pieces, float32 [V, D]."""
    arrays: dict[str, Any] = read_arrays(folder)
    table = arrays.get(STATIC_EMBEDDING, arrays.get(MODEL2VEC))
    mapping, weights = arrays.get("mapping"), arrays.get("weights")
    if table is None or table.ndim != 2:
        raise CheckpointError(
            expected=f"a table {STATIC_EMBEDDING} or {MODEL2VEC} in '{folder}'",
            found=", ".join(sorted(arrays))[:80] or "none",
            fix="download the model again",
        )
    if mapping is not None:
        rows = mapping.astype(np.int64)
        if rows.ndim != 1 or not ((rows >= 0) & (rows < len(table))).all():
            raise CheckpointError(
                expected=f"rows 0 to {len(table) - 1} as mapping in '{folder}'",
                found="others",
                fix="download the model again",
            )
        table = table[rows]
    if len(table) < pieces or (weights is not None and weights.shape != (len(table),)):
        raise CheckpointError(
            expected=f"a vector, and a weight if there are some, for each of the {pieces:,} pieces in '{folder}'",
            found=f"{len(table):,} vectors" + ("" if weights is None else f", weights of shape {list(weights.shape)}"),
            fix="download the model again",
        )
    vectors = np.asarray(table if weights is None else table * weights[:, None], np.float32)
    if (row := first_not_finite(vectors)) is not None:
        raise CheckpointError(
            expected=f"finite vectors in '{folder}'",
            found=f"NaN or infinity in that of piece {row}",
            fix="download the model again",
        )
    return vectors


def _unknown(path: Path) -> int | None:
    """The id of the unknown piece in a `tokenizer.json`, which Model2Vec does not count; None without one."""
    file = read_object(path)
    model = file["model"]
    if isinstance(model["vocab"], list):
        number = model.get("unk_id")
        return number if isinstance(number, int) else None
    unknown = model.get("unk_token")
    added = {token["content"]: int(token["id"]) for token in file.get("added_tokens") or []}
    known = model["vocab"].get(unknown, added.get(unknown))
    return None if unknown is None or known is None else int(known)
