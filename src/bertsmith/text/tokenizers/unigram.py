"""SentencePiece's Unigram segmentation (ALBERT, XLM-RoBERTa): the most probable way to split a word.

The class has the methods of `tokenizers.Tokenizer` that `pipeline.py` uses, and gives the same ids, but for one
difference: as in SentencePiece itself, ordinary text never becomes a special piece.

Source: Kudo (2018), "Subword Regularization", section 3.2; Kudo and Richardson (2018), "SentencePiece".
"""

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

from bertsmith.base.core.errors import CheckpointError
from bertsmith.text.tokenizers.charsmap import (
    Step,
    attaches,
    keeps_beginning,
    marks_spaces,
    normalized,
    normalized_with_places,
    steps_of,
)
from bertsmith.text.tokenizers.encoded import BoundedCache

_UNKNOWN_PENALTY = 10.0  # nats below the least probable piece
_MOST_CACHED, _LONGEST_CACHED = 2**17, 64  # words, and characters of a word
_ENTRY_BYTES, _CUT_BYTES = 200, 150
_SPACES = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # the property White_Space of Unicode
_NO_SPACE = re.compile(f"[^{_SPACES}]+")

Span = tuple[int, int]


class Cut(NamedTuple):
    """A piece of a word: its id, and its characters there."""

    id: int
    start: int
    end: int


class Unigram:
    """Pieces and their log-probabilities.

    Args:
        excluded: ids that no text becomes.
    """

    def __init__(self, pieces: Sequence[tuple[str, float]], unknown: int, excluded: Iterable[int] = ()) -> None:
        self.pieces, self.unknown = pieces, unknown
        without = {unknown, *excluded}
        self._ids = {piece: id for id, (piece, _) in enumerate(pieces) if id not in without}
        self._scores = [score for _, score in pieces]
        self._unknown_score = min(self._scores) - _UNKNOWN_PENALTY
        lengths: dict[str, set[int]] = {}
        for piece in self._ids:
            lengths.setdefault(piece[0], set()).add(len(piece))
        self._lengths = {first: tuple(sorted(known)) for first, known in lengths.items()}  # of the pieces, by beginning
        self._cache = BoundedCache[str, tuple[Cut, ...]](_MOST_CACHED)

    def cut(self, word: str) -> tuple[Cut, ...]:
        """The most probable pieces of a word; consecutive characters without a piece are one unknown piece."""
        result = self._cache.get(word)
        if result is None:
            result = tuple(self._best(word))
            if len(word) <= _LONGEST_CACHED:
                self._cache.put(word, result, _ENTRY_BYTES + 2 * len(word) + _CUT_BYTES * len(result))
        return result

    def _best(self, word: str) -> list[Cut]:
        """Viterbi: the best path to each character, from left to right; of equal ones, the first that is found."""
        ids, scores, size = self._ids, self._scores, len(word)
        best, starts, chosen = [-math.inf] * (size + 1), [0] * (size + 1), [self.unknown] * (size + 1)
        best[0] = 0.0
        for start in range(size):
            so_far, has_single = best[start], False
            for length in self._lengths.get(word[start], ()):
                end = start + length
                if end > size:
                    break
                id = ids.get(word[start:end])
                if id is None:
                    continue
                has_single = has_single or length == 1
                if scores[id] + so_far > best[end]:
                    best[end], starts[end], chosen[end] = scores[id] + so_far, start, id
            if not has_single and self._unknown_score + so_far > best[start + 1]:
                best[start + 1], starts[start + 1] = self._unknown_score + so_far, start
                chosen[start + 1] = self.unknown
        cuts, end = list[Cut](), size
        while end:
            start, id = starts[end], chosen[end]
            if id == self.unknown and cuts and cuts[-1].id == id:
                cuts[-1] = Cut(id, start, cuts[-1].end)
            else:
                cuts.append(Cut(id, start, end))
            end = start
        return cuts[::-1]


class UnigramEncoding:
    """The pieces of a text; the offsets are computed on demand."""

    def __init__(self, ids: list[int], offsets: "functools.partial[list[Span]]") -> None:
        self.ids, self._offsets = ids, offsets

    @property
    def offsets(self) -> list[Span]:
        """The characters (start, end) of each piece."""
        return self._offsets()


class UnigramPipeline:
    """A `tokenizer.json` with a Unigram model: added pieces, normalization, words, pieces."""

    def __init__(
        self,
        description: Mapping[str, Any],
        steps: tuple[Step, ...],
        metaspace: Mapping[str, Any],
        *,
        splits_first: bool,
        source: str,
    ) -> None:
        self.encode_special_tokens = False
        self._steps, self._splits_first = steps, splits_first
        self._mark = metaspace.get("replacement", "\u2581")
        scheme = metaspace.get("prepend_scheme", "always" if metaspace.get("add_prefix_space", True) else "never")
        self._prefixes_all, self._prefixes_first = scheme == "always", scheme in ("always", "first")
        self._word = re.compile(f"{re.escape(self._mark)}?[^{re.escape(self._mark)}]+|{re.escape(self._mark)}")
        self._splits = metaspace.get("split", True)
        model, added = description["model"], description.get("added_tokens") or ()
        try:
            pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
            self._added = {str(entry["content"]): entry for entry in added}
            ids = {text: int(entry["id"]) for text, entry in self._added.items()}
            special = [ids[text] for text, entry in self._added.items() if entry.get("special")]
            unknown = int(model["unk_id"])
            assert 0 <= unknown < len(pieces), "an id"
        except (KeyError, TypeError, ValueError, AssertionError):
            raise CheckpointError(
                expected=f"pieces with log-probabilities and the id of an unknown one in {source}",
                found="others",
                fix="use the tokenizer.json that was published with the model",
            ) from None
        # Whether what is between two spaces has pieces of its own, whatever is around it; these are remembered.
        self._is_local = splits_first and scheme != "first" and not marks_spaces(description.get("normalizer"))
        self._of_chunk = BoundedCache[str, list[int]](_MOST_CACHED)
        self._all_added = _pattern(self._added)
        self._not_special = _pattern([text for text, entry in self._added.items() if not entry.get("special")])
        self._model = Unigram(pieces, unknown, [*ids.values()])
        self._ids, self._special = {piece: id for id, (piece, _) in enumerate(pieces)} | ids, frozenset(special)
        self._pieces = {id: piece for piece, id in self._ids.items()}
        self._decodes_first = (description.get("decoder") or {}).get("prepend_scheme", "always") != "never"

    @classmethod
    def of(cls, description: Mapping[str, Any], source: str) -> Self | None:
        """The pipeline of a `tokenizer.json`; None if it has another model, or a step that is unknown here."""
        model, decoder = description.get("model"), description.get("decoder")
        if not isinstance(model, Mapping) or not isinstance(model.get("vocab"), list) or model.get("byte_fallback"):
            return None
        if model.get("type", "Unigram") != "Unigram" or any(
            entry.get("normalized") or entry.get("single_word") for entry in description.get("added_tokens") or ()
        ):
            return None
        if not isinstance(decoder, Mapping) or decoder.get("type") != "Metaspace":
            return None
        splitter = description.get("pre_tokenizer")
        parts = [splitter]
        if isinstance(splitter, Mapping) and splitter.get("type") == "Sequence":
            parts = splitter.get("pretokenizers") or []
        kinds = [entry.get("type") if isinstance(entry, Mapping) else None for entry in parts]
        if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
            return None
        steps = steps_of(description.get("normalizer"), source)
        if steps is None:
            return None
        return cls(
            description, steps, cast("Mapping[str, Any]", parts[-1]), splits_first=len(kinds) == 2, source=source
        )

    def get_vocab(self, *, with_added_tokens: bool = True) -> dict[str, int]:
        """The pieces and their ids."""
        return dict(self._ids)

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = False) -> list[UnigramEncoding]:
        """The pieces of many texts."""
        assert not add_special_tokens, "rows are made elsewhere"
        return [
            UnigramEncoding(
                [id for part in self._parts(text) for id in self._ids_of(text, part)],
                functools.partial(self._offsets, text),
            )
            for text in texts
        ]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of some pieces."""
        pieces = [self._pieces[id] for id in ids if not (skip_special_tokens and id in self._special)]
        if pieces and self._decodes_first:
            pieces[0] = pieces[0].replace(self._mark, "")
        return "".join(pieces).replace(self._mark, " ")

    def _parts(self, text: str) -> Iterator[tuple[int, int, int | None]]:
        """The parts of a text (start, end) that are ordinary text, or else the id of an added piece."""
        begin = 0
        pattern = self._not_special if self.encode_special_tokens else self._all_added
        for match in () if pattern is None else pattern.finditer(text):
            token = self._added[match["piece"]]
            start = match.start() if token.get("lstrip") else match.start("piece")
            end = match.end() if token.get("rstrip") else match.end("piece")
            if start > begin:
                yield begin, start, None
            yield match.start("piece"), match.end("piece"), self._ids[match["piece"]]
            begin = end
        if begin < len(text):
            yield begin, len(text), None

    def _ids_of(self, text: str, part: tuple[int, int, int | None]) -> list[int]:
        start, end, id = part
        if id is not None:
            return [id]
        chunks = text[start:end].split(" ") if self._is_local else [text[start:end]]
        if any(chunk and attaches(chunk[0]) for chunk in chunks):
            chunks = [text[start:end]]
        result = list[int]()
        for chunk in chunks:
            ids = self._of_chunk.get(chunk)
            if ids is None:
                words = self._words(normalized(chunk, self._steps), is_first=start == 0 and self._begins(chunk))
                ids = [cut.id for word, _, _ in words for cut in self._model.cut(word)]
                if self._is_local and len(chunk) <= _LONGEST_CACHED:
                    self._of_chunk.put(chunk, ids, _ENTRY_BYTES + 2 * len(chunk) + 8 * len(ids))
            result += ids
        return result

    def _offsets(self, text: str) -> list[Span]:
        result = list[Span]()
        for start, end, id in self._parts(text):
            if id is not None:
                result.append((start, end))
                continue
            plain, origins = normalized_with_places(text[start:end], self._steps)
            for word, position, added in self._words(plain, is_first=start == 0 and self._begins(text[start:end])):
                for cut in self._model.cut(word):  # a mark that was added is where the first character is
                    first, last = (position + max(edge - added, 0) for edge in (cut.start, cut.end - 1))
                    result.append((start + origins[first][0], start + origins[last][1]))
        return result

    def _begins(self, text: str) -> bool:
        """Whether the first word begins where the text does, which the package wants for the mark of a first word."""
        is_known = self._prefixes_all or not (self._prefixes_first and self._splits_first)
        return is_known or keeps_beginning(text, self._steps)

    def _words(self, text: str, *, is_first: bool) -> Iterator[tuple[str, int, int]]:
        """The words of a text with their marks, the position of each in the text, and the marks that were added."""
        parts = [(match[0], match.start()) for match in _NO_SPACE.finditer(text)] if self._splits_first else [(text, 0)]
        for part, position in parts:
            marked = part.replace(" ", self._mark)
            prefixes = self._prefixes_all or (self._prefixes_first and is_first and position == 0)
            added = int(prefixes and bool(marked) and not marked.startswith(self._mark))
            marked = self._mark * added + marked
            for match in self._word.finditer(marked) if self._splits else (None,):
                if match is None:
                    yield marked, position, added
                elif match.start():
                    yield match[0], position + match.start() - added, 0
                else:
                    yield match[0], position, added


def _pattern(added: Iterable[str]) -> re.Pattern[str] | None:
    """The pattern of added pieces, with the white space around them; None if there are none."""
    choices = "|".join(re.escape(text) for text in sorted(added, key=len, reverse=True))
    return re.compile(rf"\s*(?P<piece>{choices})\s*") if choices else None
