"""Writes the rows of an index to one Parquet file, for other programs.

The columns are id, text, the others of the index (all of them texts), and `vector`, a fixed-size list of float32.
Vectors of other kinds than dense ones are not written.
"""

from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.request import DENSE, named
from bertsmith.inference.vectors.files import VectorFile
from bertsmith.inference.vectors.writers import VECTOR

_BLOCK = 16_384  # rows


def export_rows(index: Index, out: Path, *, replace: bool = False) -> int:
    """Writes the rows that are not removed, and returns their number; the record next to the file names the model."""
    manifest = index.manifest
    if VECTOR in manifest.columns:
        raise InputError(
            expected=f"no column {VECTOR!r} besides the vectors in '{index.folder}'",
            found="one",
            fix="build the index without that column",
        )
    if DENSE not in manifest.vectors:
        raise InputError(
            expected=f"dense vectors in '{index.folder}'",
            found=f"only {' and '.join(map(named, manifest.vectors))}, for which Parquet has no type",
            fix="export an index of dense vectors",
        )
    dense = manifest.vectors[DENSE]
    if not manifest.rows:
        raise InputError(expected=f"texts in '{index.folder}'", found="none", fix="add some with --add")
    file = VectorFile(out, dense.made_of, dense.width, index=True, replace=replace)
    with file, Progress("exporting", total=manifest.rows, unit="texts") as progress:
        for segment in index.segments:
            numbers = segment.numbers()
            for start in range(0, len(numbers), _BLOCK):
                rows = numbers[start : start + _BLOCK]
                table = segment.rows.table.take(rows)
                columns = {name: table[name].combine_chunks() for name in index.table.schema.names}
                file.append(segment.vectors[DENSE].stored(rows), columns)
                file.commit({})
                progress.advance(len(rows))
        file.finish()
    return manifest.rows
