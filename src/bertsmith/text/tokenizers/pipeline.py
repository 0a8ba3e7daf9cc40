"""Tokenizers of other models: any pipeline in a `tokenizer.json`.

Unigram pieces (ALBERT, XLM-RoBERTa) come from `unigram.py`; the package `tokenizers`, which the extra of that name
installs, runs byte-level BPE (RoBERTa, ModernBERT) and all other pipelines. WordPiece has its own, faster
implementation.
"""

import functools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.storage.files import digest_bytes
from bertsmith.text.tokenizers.blocks import Strings, is_arrow
from bertsmith.text.tokenizers.encoded import Encoded, EncodedWithOffsets, Ids, Pieces
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.text_rules_json import rules_in
from bertsmith.text.tokenizers.tokenizer import Flags, SpecialsAsCharacters, SpecialTokens, Tokenizer, say_special
from bertsmith.text.tokenizers.vocabulary import MASK, SpecialPieces, Vocabulary

_SPACE_MARKS = ("\u0120", "\u2581")  # the space before a word in byte-level BPE and in SentencePiece


class PipelineTokenizer(Tokenizer):
    """A tokenizer defined by a `tokenizer.json`."""

    kind = "pieces"

    def __init__(self, description: dict[str, Any], special: SpecialPieces, *, source: str) -> None:
        self.description, self.source = description, source
        self._tokenizer = _build(_with_reserved(description, special), source)
        self._tokenizer.encode_special_tokens = True  # ordinary text cannot make the ids of special pieces
        pieces = self._tokenizer.get_vocab(with_added_tokens=True)
        by_id = {id: piece for piece, id in pieces.items()}
        # Ids without a piece occur if the size of the table was rounded up; they are never produced.
        names = [by_id.get(id, f"<unused id {id}>") for id in range(max(by_id) + 1)]
        self.vocabulary = Vocabulary(names, special=special, source=source, has_ids=True)
        self._specials = SpecialsAsCharacters(self)
        self.rules = _rules(description)
        self.template = template_of(description.get("post_processor"), source)

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(PipelineTokenizer, source=self.source)
        return (
            make,
            (self.description, self.vocabulary.special),
            {"template": self.template, "max_characters": self.max_characters},
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The digest of the description."""
        text = json.dumps(self.description, sort_keys=True, ensure_ascii=False)
        return {"tokenizer_json": digest_bytes(text.encode("utf-8", "surrogatepass"))}

    @functools.cached_property
    def begins_word(self) -> Flags:
        """Whether a piece includes the space before a word, or of WordPieces does not continue one, bool [V]."""
        model = self.description["model"]
        if model.get("type") == "WordPiece":
            mark = str(model["continuing_subword_prefix"])
            return np.array([not piece.startswith(mark) for piece in self.vocabulary.pieces], dtype=np.bool_)
        return np.array([piece.startswith(_SPACE_MARKS) for piece in self.vocabulary.pieces], dtype=np.bool_)

    def starts_of_words(self, ids: Ids) -> Flags:
        """See `Tokenizer`; with marks at the ends of words, a piece starts one if the piece before ends one."""
        suffix = self.description["model"].get("end_of_word_suffix")
        if not suffix:
            return self.begins_word[ids]
        ends = np.array([piece.endswith(suffix) for piece in self.vocabulary.pieces], dtype=np.bool_)
        return np.concatenate([[True], ends[ids[:-1]]]) if len(ids) else ends[ids]

    def encode_batch(self, texts: Strings, *, special_tokens: SpecialTokens = False) -> Encoded:
        """The ids of many texts; see `Tokenizer.encode_batch`."""
        texts = self.shortened(texts)
        strings = texts.to_pylist() if is_arrow(texts) else texts
        return Encoded.from_rows(
            [encoding.ids for encoding in self._encodings([text or "" for text in strings], special_tokens)]
        )

    def encode_words(self, words: Strings, spaced: Sequence[bool] | None = None) -> Encoded:
        """The ids of many words, each with the space before it unless `spaced` says otherwise."""
        flags = [True] * len(words) if spaced is None else spaced
        return self.encode_batch([f" {word}" if space else word for word, space in zip(words, flags, strict=True)])

    def encode_with_offsets(self, text: str, *, special_tokens: SpecialTokens = False) -> Pieces:
        """The ids of one text with character offsets, which exclude the space before a word."""
        (encoding,) = self._encodings([text], special_tokens)
        spelled = self._spelled(text, special_tokens)
        spans = [_without_space(spelled, *span) for span in encoding.offsets]
        if spelled != text:
            spans = _as_written(text, spans, len(self.vocabulary.special.mask) - len(MASK))
        columns = (encoding.ids, [start for start, _ in spans], [end for _, end in spans])
        return Pieces(*(np.array(column, dtype=np.int32) for column in columns))

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> EncodedWithOffsets:
        """The ids of many texts with character offsets."""
        rows = [self.encode_with_offsets(text) for text in texts]
        starts = np.concatenate([np.empty(0, np.int64), *(row.starts for row in rows)])
        ends = np.concatenate([np.empty(0, np.int64), *(row.ends for row in rows)])
        return EncodedWithOffsets(
            Encoded.from_rows([row.ids for row in rows]), starts.astype(np.int64), ends.astype(np.int64)
        )

    def locate(self, ids: Sequence[int], words: str, before: Sequence[int] = ()) -> tuple[int, int]:
        """The characters (start, end) of `words` that some of its pieces cover; the whole of `words` if unclear."""
        wanted = self.decode(ids, skip_special=False).strip()
        ahead = len(self.decode(before, skip_special=False).lstrip())
        starts = [start for start in range(len(words)) if wanted and words.startswith(wanted, start)]
        if not starts:
            return 0, len(words)
        start = min(starts, key=lambda start: abs(start - ahead))
        return start, start + len(wanted)

    def decode(self, ids: Iterable[int] | Ids, *, skip_special: bool = True) -> str:
        """The text of some pieces, from the decoder in the file."""
        return str(self._tokenizer.decode([int(id) for id in ids], skip_special_tokens=skip_special))

    def _encodings(self, texts: list[str], special_tokens: SpecialTokens) -> list[Any]:
        tokenizer = self._reads_special if special_tokens else self._tokenizer
        spelled = [self._spelled(text, special_tokens) for text in texts]
        if special_tokens:
            named = [piece for piece in self.vocabulary.special if piece]
            say_special(self, (piece for piece in named if any(piece in text for text in spelled)), special_tokens)
        else:
            for text in texts:
                self._specials.look(text)
        return list(tokenizer.encode_batch(spelled, add_special_tokens=False))

    @functools.cached_property
    def _reads_special(self) -> Any:
        """The same tokenizer for texts with special pieces; a switch on the other would not be safe among threads."""
        return _build(self.description, self.source)

    def _spelled(self, text: str, special_tokens: SpecialTokens) -> str:
        """The text with [MASK] as the model spells it, where [MASK] is the mask."""
        mask = self.vocabulary.special.mask
        return text.replace(MASK, mask) if special_tokens is True and mask else text


def _with_reserved(description: dict[str, Any], special: SpecialPieces) -> dict[str, Any]:
    """The description with the special pieces of the model as its only special tokens; texts become all others."""
    entries = description.get("added_tokens") or []
    return {**description, "added_tokens": [entry | {"special": entry["content"] in special} for entry in entries]}


def _build(description: dict[str, Any], source: str) -> Any:
    from bertsmith.text.tokenizers.unigram import UnigramPipeline

    pipeline = UnigramPipeline.of(description, source)
    if pipeline is not None:
        return pipeline
    try:
        import tokenizers
    except ImportError:
        raise CheckpointError(
            expected=f"the package tokenizers, which runs the pipeline in {source}",
            found="none",
            fix="install it: pip install 'bertsmith[tokenizers]'",
        ) from None
    # Truncation happens elsewhere; nothing is padded.
    plain = {**description, "truncation": None, "padding": None}
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(plain))
    except Exception as error:  # noqa: BLE001 - the package raises nothing narrower
        raise CheckpointError(
            expected=f"a tokenizer that the package tokenizers {tokenizers.__version__} reads in {source}",
            found=" ".join(str(error).split())[:120],
            fix="update the package, or use the tokenizer.json that was published with the model",
        ) from None


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """The span of a piece without its leading white space."""
    while start < end and text[start].isspace():
        start += 1
    return start, end


def _as_written(text: str, spans: list[tuple[int, int]], growth: int) -> list[tuple[int, int]]:
    """Spans in the text as the model spells it, as spans in `text`; `growth` is what each [MASK] in it gained."""
    ends = np.array([match.end() for match in re.finditer(re.escape(MASK), text)])
    ends += growth * np.arange(1, len(ends) + 1)  # in the text as the model spells it
    flat = np.array(spans, dtype=np.int64).reshape(-1, 2)
    written: list[tuple[int, int]] = (flat - growth * np.searchsorted(ends, flat, side="right")).tolist()
    return [(start, end) for start, end in written]


def _rules(description: dict[str, Any]) -> TextRules:
    """The text rules that a description states; of steps other than BERT's, only whether they lower-case."""
    stated: dict[str, Any] = {name: value for name, value in rules_in(description).items() if isinstance(value, bool)}
    return TextRules(**{"lowercase": _lowercases(description.get("normalizer")), **stated})


def _lowercases(normalizer: dict[str, Any] | None) -> bool:
    """Whether a normalizer lower-cases the text."""
    if not isinstance(normalizer, dict):
        return False
    kind = normalizer.get("type")
    inner = normalizer.get("normalizers", [])
    return kind == "Lowercase" or bool(normalizer.get("lowercase")) or any(_lowercases(step) for step in inner)


def template_of(processor: Any, source: str) -> Template:
    """The template in a post-processor."""
    kind = processor.get("type") if isinstance(processor, dict) else None
    if kind in ("RobertaProcessing", "BertProcessing"):
        cls, sep = ((int(processor[part][1]),) for part in ("cls", "sep"))
        is_bert = kind == "BertProcessing"
        between = sep if is_bert else sep + sep
        return Template(start=cls, between=between, end=sep, second_segment=1 if is_bert else 0)
    if kind == "TemplateProcessing":
        single, pair = (_written(processor, form) for form in ("single", "pair"))
        if [text for text, _, _ in single[1::2]] == ["A"] and [text for text, _, _ in pair[1::2]] == ["A", "B"]:
            segment = pair[3][1]
            result = Template(start=pair[0][2], between=pair[2][2], end=pair[4][2], second_segment=segment)
            segments = [part[1] for part in pair if part[0] or part[2]]
            expected = [part for part, ids in zip((0, 0, 0, segment, segment), pair, strict=True) if ids[0] or ids[2]]
            is_same = (single[0][2], single[2][2]) == (result.start, result.end) and not any(part[1] for part in single)
            if is_same and segments == expected:
                return result
    inner = [step for step in processor.get("processors", []) if step["type"].endswith("Processing")] if kind else []
    if len(inner) == 1:
        return template_of(inner[0], source)
    raise CheckpointError(
        expected=f"a post-processor in {source} that adds the special tokens of a row",
        found=repr(kind),
        fix="use the tokenizer.json that was published with the model",
    )


def _written(processor: dict[str, Any], form: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """The parts of a template, special tokens and texts in turn: (the name of a text, segment, ids).

    The segment of special tokens in different ones is -1.
    """
    parts: list[tuple[str, int, tuple[int, ...]]] = [("", 0, ())]
    for item in processor[form]:
        (said,) = item.values()
        segment = int(said.get("type_id", 0))
        if "Sequence" in item:
            parts += [(str(said["id"]), segment, ()), ("", 0, ())]
            continue
        _, before, ids = parts[-1]
        new = tuple(processor["special_tokens"][said["id"]]["ids"])
        parts[-1] = ("", segment if segment == before or not ids else -1, ids + new)
    return parts
