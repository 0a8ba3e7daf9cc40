"""Writes the rows of an index to one Parquet file, for other programs.

The columns are id, text, the others of the index (all of them texts), and of its vectors `vector`, a fixed-size list of
float32, and `sparse`, the indices and values of each sparse one. Vectors of tokens are not written.
"""

from pathlib import Path

import pyarrow as pa
import scipy.sparse as sp

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.request import DENSE, SPARSE, named
from bertsmith.inference.vectors.files import VectorFile
from bertsmith.inference.vectors.writers import SPARSE_FIELDS, SPARSE_VECTOR, VECTOR

_BLOCK = 16_384  # rows
_COLUMNS = {DENSE: VECTOR, SPARSE: SPARSE_VECTOR}


def export_rows(index: Index, out: Path, *, replace: bool = False) -> int:
    """Writes the rows that are not removed, and returns their number; the record next to the file names the models."""
    manifest = index.manifest
    written = {kind: about for kind, about in manifest.vectors.items() if kind in _COLUMNS}
    if taken := [name for kind in written if (name := _COLUMNS[kind]) in manifest.columns]:
        raise InputError(
            expected=f"no column {taken[0]!r} besides the vectors in '{index.folder}'",
            found="one",
            fix="build the index without that column",
        )
    if not written:
        raise InputError(
            expected=f"dense or sparse vectors in '{index.folder}'",
            found=f"only {' and '.join(map(named, manifest.vectors))}, for which Parquet has no type",
            fix="export an index of others",
        )
    if not manifest.rows:
        raise InputError(expected=f"texts in '{index.folder}'", found="none", fix="add some with --add")
    dense = written.get(DENSE)
    made_of = {**(dense.made_of if dense else {}), **({SPARSE: written[SPARSE].made_of} if SPARSE in written else {})}
    width = (dense or written[SPARSE]).width
    file = VectorFile(out, made_of, width, index=True, replace=replace)
    with file, Progress("exporting", total=manifest.rows, unit="texts") as progress:
        for segment in index.segments:
            numbers = segment.numbers()
            for start in range(0, len(numbers), _BLOCK):
                rows = numbers[start : start + _BLOCK]
                table = segment.rows.table.take(rows)
                columns = {name: table[name].combine_chunks() for name in index.table.schema.names}
                if SPARSE in written:
                    columns[SPARSE_VECTOR] = _pairs(segment.vectors[SPARSE].stored(rows))
                file.append(segment.vectors[DENSE].stored(rows) if dense else None, columns)
                file.commit({})
                progress.advance(len(rows))
        file.finish()
    return manifest.rows


def _pairs(matrix: sp.csr_matrix) -> pa.StructArray:
    """The indices, ascending, and the values of each row of a sparse matrix."""
    matrix.sort_indices()
    parts = (matrix.indices.astype("<i4"), matrix.data.astype("<f4"))
    lists = [pa.ListArray.from_arrays(matrix.indptr.astype("<i4"), pa.array(part)) for part in parts]
    return pa.StructArray.from_arrays(lists, SPARSE_FIELDS)
