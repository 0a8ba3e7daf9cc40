"""Sequences of feature vectors from `.npy` files: one file for each sequence, or one file and a table of its sequences.

The table has the columns `subject`, `start` and `stop`: the rows from `start` up to, but not including, `stop` of the
array are the sequence of that subject.

N rows of an array, F numbers of a feature vector.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import require_file, write_text
from bertsmith.base.storage.outputs import EVENT_TABLE, FEATURE_WORDS, require_output
from bertsmith.recipes.video.request import AssignRequest, ClusterRequest
from bertsmith.tasks.datasets.cells import Row
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.text.codes.feature_words import FeatureWords, Floats, learn_feature_words

_COLUMNS = ("subject", "start", "stop")


class FeatureSequence(NamedTuple):
    """A sequence of feature vectors.

    Attributes:
        features: [N, F], maybe still on disk.
        first: the number of its first row in the file, from 0.
    """

    subject: str
    path: Path
    features: npt.NDArray[np.floating]
    first: int = 0

    def rows(self, chosen: npt.NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Some of the vectors, float32 [n, F]; checked.

        Raises:
            InputError: a number is NaN or infinite; the message has the row.
        """
        with np.errstate(over="ignore"):
            rows = np.asarray(self.features[chosen], dtype=np.float32)
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(wrong):
            row = self.first + int(np.arange(len(self.features))[chosen][wrong[0]])
            raise InputError.at(
                f"row {row:,} of '{self.path}'", "finite numbers", "NaN, infinity or too large", "remove the row"
            )
        return rows


def read_sequences(paths: Sequence[str | Path], index: str | Path | None = None) -> list[FeatureSequence]:
    """The sequences in files and folders of files, in order; all of the same width.

    Args:
        index: a table of the sequences in the only file.

    Raises:
        InputError: a file is not an array of feature vectors, has another width, or has no rows; or the table is wrong.
    """
    files = [file for path in map(Path, paths) for file in _files_of(path)]
    sequences: list[FeatureSequence] = []
    if index is not None:
        require(len(files) == 1, expected="one file with --sequences", found=f"{len(files)} files", fix="name one file")
        features = _read_array(files[0])
        sequences = [
            FeatureSequence(subject, files[0], features[start:stop], start)
            for subject, start, stop in _spans(Path(index), len(features))
        ]
    else:
        sequences = [FeatureSequence(file.stem, file, _read_array(file)) for file in files]
    seen: dict[str, Path] = {}
    for sequence in sequences:
        if index is None and sequence.subject in seen:
            both = f"'{seen[sequence.subject]}' and '{sequence.path}'"
            raise InputError(expected="files with different names", found=both, fix="rename one; its name is a subject")
        seen[sequence.subject] = sequence.path
        width, first = sequence.features.shape[1], sequences[0]
        if width != first.features.shape[1]:
            expected = f"feature vectors of width {first.features.shape[1]}, as in '{first.path}',"
            raise InputError.at(f"'{sequence.path}'", expected, f"width {width}", "name arrays of one width")
    return sequences


def points_of(sequences: Sequence[FeatureSequence], most: int, seed: int) -> Floats:
    """The vectors to learn from: all, or `most` of them drawn at random, in order."""
    lengths = np.array([len(sequence.features) for sequence in sequences])
    total = int(lengths.sum())
    if total <= most:
        return np.concatenate([sequence.rows() for sequence in sequences])
    chosen = np.sort(generator(seed, "feature vectors").choice(total, most, replace=False))
    ends = np.cumsum(lengths)
    parts = np.split(chosen, np.searchsorted(chosen, ends[:-1]))
    begins = ends - lengths
    return np.concatenate(
        [sequence.rows(part - begin) for sequence, part, begin in zip(sequences, parts, begins, strict=True)]
    )


@takes(ClusterRequest)
def cluster_features(request: ClusterRequest) -> FeatureWords:
    """Words for feature vectors, learned by hierarchical k-means and written to a file.

    Raises:
        BertsmithError: a file is invalid, or the output is in the way; the message says which.
    """
    out = Path(request.out)
    require_output(out, FEATURE_WORDS, inputs=[*request.features, request.sequences], replace=request.replace)
    points = points_of(read_sequences(request.features, request.sequences), request.points, request.seed)
    words = learn_feature_words(points, depth=request.depth, branching=request.branching, seed=request.seed)
    words.save(out)
    return words


@takes(AssignRequest)
def assign_words(request: AssignRequest) -> int:
    """The number of events written: the word of each feature vector, with its subject and time.

    Raises:
        BertsmithError: a file is invalid, or the output is in the way; the message says which.
    """
    out, inputs = Path(request.out), [*request.features, request.sequences, request.words]
    require_output(out, EVENT_TABLE, inputs=inputs, replace=request.replace)
    words = FeatureWords.load(request.words)
    sequences = read_sequences(request.features, request.sequences)
    return write_events(out, events_of(words, sequences, request.seconds))


def events_of(
    words: FeatureWords, sequences: Iterable[FeatureSequence], seconds: float
) -> Iterator[tuple[str, float, str]]:
    """Subject, time and word of each vector; the row numbers of a sequence, from 0, times `seconds` are the times."""
    for sequence in sequences:
        require(
            sequence.features.shape[1] == words.width,
            expected=f"feature vectors of width {words.width}, as the words were learned from",
            found=f"width {sequence.features.shape[1]} in '{sequence.path}'",
            fix="compute the features with the same model",
        )
        for row, word in enumerate(words.words_of(sequence.rows()).tolist()):
            yield sequence.subject, round(row * seconds, 6), words.names[word]


def write_events(path: Path, events: Iterable[tuple[str, float, str]]) -> int:
    """Writes a table with the columns `subject`, `time` and `code`; returns the number of events."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("subject", "time", "code"))
    count = 0
    for subject, time, code in events:
        writer.writerow((subject, np.format_float_positional(time, trim="-"), code))
        count += 1
    write_text(path, text.getvalue())
    return count


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        require_file(path, "an array of feature vectors")
        return [path]
    files = sorted(path.glob("*.npy"))
    if not files:
        raise InputError(expected=f".npy files in '{path}'", found="none", fix="name the files or their folder")
    return files


def _read_array(path: Path) -> npt.NDArray[np.floating]:
    expected, fix = "a NumPy array (.npy) of feature vectors, rows x numbers", "save one with numpy.save"
    try:
        array = np.lib.format.open_memmap(path, mode="r")  # one array, neither an archive nor a pickle
    except (ValueError, OSError) as error:
        raise InputError.is_not(path, expected, str(error).splitlines()[0][:80], fix) from None
    if array.ndim != 2 or not array.shape[1] or array.dtype.kind not in "fiu":
        reason = f"its shape is {list(array.shape)} and its type {array.dtype}"
        raise InputError.is_not(path, expected, reason, fix)
    if not len(array):
        raise InputError.is_not(path, expected, "it has no rows", "leave it out")
    return array


def _spans(path: Path, rows: int) -> Iterator[tuple[str, int, int]]:
    """Subject, start and stop of each row of a table of sequences."""
    seen: dict[str, str] = {}
    for row in read_table(path):
        if row.is_empty:
            continue
        subject, *cells = (row.cell(column, "add it, with the other columns").strip() for column in _COLUMNS)
        if not subject or subject in seen:
            shown = f"{subject!r}, as in {seen[subject]}" if subject else "an empty one"
            raise InputError.at(row.location, "a subject of its own", shown, "name each sequence differently")
        seen[subject] = row.location
        start, stop = (_row_number(row, cell) for cell in cells)
        if not start < stop <= rows:
            expected = f"a stop after the start and within the {counted(rows, 'row')} of the array"
            raise InputError.at(row.location, expected, f"{start:,} to {stop:,}", "correct them")
        yield subject, start, stop


def _row_number(row: Row, cell: str) -> int:
    if not cell.isdecimal():
        raise InputError.at(row.location, "row numbers from 0 as start and stop", repr(cell[:40]), "correct them")
    return int(cell)
