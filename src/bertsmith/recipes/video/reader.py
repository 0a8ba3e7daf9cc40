"""Answers of a trained model of texts with codes: missing words, alignment, next codes, vectors.

Rows are computed in batches by length, so an answer is the same alone and among others, up to the last digits.

Letters: N rows, M gaps, V pieces, C codes, D width.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.finite import require_finite
from bertsmith.base.core.progress import Progress, counted, warn
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Runtime, choose
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read, cut_by_tokens
from bertsmith.models.parts.layers import linear
from bertsmith.recipes.video.growth import CodePieces
from bertsmith.recipes.video.rows import NO_LABEL, Ids, VideoRow, packed
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import MASK

Floats = npt.NDArray[np.float32]
Wanted = Callable[[int], npt.NDArray[np.int64]]  # the positions that are read in a row of that length
_GAP_TOKENS = 16  # that a gap counts as in a batch: its logits are as many numbers as there are pieces


@dataclasses.dataclass(frozen=True)
class _Part:
    """Some rows of a batch that were computed.

    Attributes:
        rows: their indices, [n].
        wanted: of each position that was read, its row among them.
    """

    rows: npt.NDArray[np.int64]
    wanted: npt.NDArray[np.int64]
    hidden: Tensor


class VideoReader:
    """A model of texts with codes.

    Args:
        source: the model in messages.
    """

    def __init__(self, model: EncoderForPreTraining, tokenizer: Tokenizer, runtime: Runtime, source: str) -> None:
        self.model = model.to(runtime.torch_device).eval()
        self.tokenizer, self.runtime = tokenizer, runtime
        self.codes = CodePieces.of(tokenizer, source)
        words = np.zeros(len(tokenizer.vocabulary), dtype=np.bool_)
        words[: self.codes.first - 1] = True
        words[list(tokenizer.vocabulary.special_ids)] = False
        self._words = torch.from_numpy(np.flatnonzero(words)).to(runtime.torch_device)

    @staticmethod
    def load(path: str | Path, device: str = "auto") -> "VideoReader":
        """The model of a folder, or of the run that has it."""
        folder = load_any(path)
        CodePieces.of(folder.require_tokenizer(), folder.name)
        loaded = load_pretrained(folder)
        return VideoReader(loaded.model, folder.require_tokenizer(), choose(device, "fp32"), folder.name)

    def text_ids(self, text: str, location: str = "the text") -> Ids:
        """The ids of a text that may have [MASK]; it has to fit into a row with a code."""
        ids = self.tokenizer.encode_batch([text], special_tokens=True)[0]
        room = self.model.encoder.max_tokens - 4
        if len(ids) > room:
            raise InputError.at(location, f"at most {room} pieces", f"{len(ids):,}", "shorten it")
        return ids

    def code_ids(self, codes: Sequence[str], location: str = "the codes") -> Ids:
        """The ids of codes, at least one, all of them known."""
        require(bool(codes), expected=f"a code in {location}", found="none", fix="name at least one")
        return self.codes.known(codes, location)

    def word_chances(self, text: str, codes: Sequence[Ids]) -> Floats:
        """The probability of each piece of the vocabulary in each gap of a text next to codes, float32 [N, M, V].

        Only words are compared, neither codes nor special pieces. Codes without any id are not codes: that is what the
        model expects from the text alone.
        """
        ids = self.text_with_gaps(text)
        gaps = np.flatnonzero(ids == self.tokenizer.vocabulary.mask_id) + 1
        rows = [VideoRow(ids, of_row, NO_LABEL, 0) for of_row in codes]
        chances = np.zeros((len(rows), len(gaps), len(self.tokenizer.vocabulary)), dtype=np.float32)
        columns = self._words.cpu().numpy()
        for part in self._parts(rows, lambda _: gaps, cost=_GAP_TOKENS * len(gaps)):
            shares = self._shares(part.hidden, self._words)
            for row, of_row in zip(part.rows.tolist(), shares.reshape(len(part.rows), len(gaps), -1), strict=True):
                chances[row][:, columns] = of_row
        require_finite(chances, lambda index: index)
        return chances

    def alignment(self, pairs: Sequence[tuple[Ids, Ids]], label: str = "") -> Floats:
        """The probability that the text and the codes of each pair belong together, float32 [N]."""
        rows = [VideoRow(text, codes, NO_LABEL, 0) for text, codes in pairs]
        result = np.zeros(len(rows), dtype=np.float32)
        for part in self._parts(rows, lambda _: np.zeros(1, dtype=np.int64), label=label):
            with torch.no_grad():
                logits = linear(self.model.encoder.pool(part.hidden), self.model.nsp)
            result[part.rows] = logits.float().softmax(1)[:, 0].cpu().numpy()
        require_finite(result, lambda index: index)
        return result

    def next_codes(self, rows: Sequence[tuple[Ids, Ids]]) -> Floats:
        """The probability of each code of the model to follow a text and codes, float32 [N, C]."""
        mask = np.array([self.tokenizer.vocabulary.mask_id], dtype=np.int32)
        rooms = self._rooms([text for text, _ in rows], [1 + len(codes) for _, codes in rows], "start")
        asked = [
            VideoRow(text, np.concatenate([codes, mask])[-room:], NO_LABEL, 0)
            for (text, codes), room in zip(rows, rooms, strict=True)
        ]
        columns = torch.arange(self.codes.first, self.codes.first + len(self.codes.names))
        result = np.zeros((len(asked), len(columns)), dtype=np.float32)
        last = -2  # before [SEP]
        for part in self._parts(asked, lambda length: np.array([length + last]), cost=_GAP_TOKENS):
            result[part.rows] = self._shares(part.hidden, columns.to(self.runtime.torch_device))
        require_finite(result, lambda index: index)
        return result

    def features(self, text: str, codes: Sequence[Ids]) -> Floats:
        """The mean of the states of the codes, and that of the gaps of a text next to them, float32 [N, 2 D].

        Source: Sun et al. (2019), "VideoBERT", section 4.6.
        """
        ids = self.text_with_gaps(text)
        gaps = np.flatnonzero(ids == self.tokenizer.vocabulary.mask_id) + 1
        begin = len(ids) + 2  # after [CLS], the text and [>]
        result = np.zeros((len(codes), 2 * self.model.encoder.width), dtype=np.float32)
        rows = [VideoRow(ids, of_row, NO_LABEL, 0) for of_row in codes]

        def wanted(length: int) -> npt.NDArray[np.int64]:
            return np.concatenate([gaps, np.arange(begin, length - 1)])

        for part in self._parts(rows, wanted, label="reading"):
            ends = np.cumsum(np.bincount(part.wanted, minlength=len(part.rows))).tolist()
            hidden = part.hidden.float().cpu().numpy()
            for row, start, end in zip(part.rows.tolist(), [0, *ends], ends, strict=False):
                of_gaps, of_codes = hidden[start : start + len(gaps)], hidden[start + len(gaps) : end]
                result[row] = np.concatenate([of_codes.mean(axis=0), of_gaps.mean(axis=0)])
        return result

    def text_with_gaps(self, text: str, location: str = "the text") -> Ids:
        """The ids of a text that has [MASK]; see `text_ids`."""
        ids = self.text_ids(text, location)
        if not self.gaps(ids):
            raise InputError(
                expected=f"{MASK} in {location}",
                found=repr(text[:60]),
                fix=f"write {MASK}, in capitals, where a word is missing",
            )
        return ids

    def _shares(self, hidden: Tensor, columns: Tensor) -> Floats:
        """The softmax over some pieces, float32 [M, columns]."""
        with torch.no_grad():
            logits = self.model.mlm(hidden, self.model.encoder.word_table)
        shares: Floats = logits.float()[:, columns].softmax(1).cpu().numpy()
        return shares

    def gaps(self, text: Ids) -> int:
        """How many words are missing in a text."""
        return int((text == self.tokenizer.vocabulary.mask_id).sum())

    def room(self, text: Ids) -> int:
        """The codes that fit next to a text."""
        return self.model.encoder.max_tokens - 3 - len(text)

    def _rooms(self, texts: Sequence[Ids], codes: Sequence[int], end: str) -> list[int]:
        """The codes that fit next to each text; warns if there are more, which are left out at that end."""
        limit = self.model.encoder.max_tokens
        rooms = list(map(self.room, texts))
        if longer := sum(count > room for count, room in zip(codes, rooms, strict=True)):
            warn(
                f"codes beyond the {limit} tokens that the model reads, left out at the {end}: {counted(longer, 'row')}"
            )
        return rooms

    def _parts(self, rows: Sequence[VideoRow], wanted: Wanted, *, cost: int = 0, label: str = "") -> Iterator[_Part]:
        """The last hidden states at the wanted positions, batch by batch."""
        if not rows:
            return
        limit = self.model.encoder.max_tokens
        rooms = self._rooms([row.text for row in rows], [len(row.codes) for row in rows], "end")
        rows = [row._replace(codes=row.codes[:room]) for row, room in zip(rows, rooms, strict=True)]
        flat, order = packed(rows, self.tokenizer, self.codes, limit, limit)
        lengths, numbers = flat.lengths.astype(np.int64), np.array(order)
        with Progress(label or "computing", total=len(rows), unit="rows") as progress:
            for chosen in cut_by_tokens(
                np.argsort(lengths, kind="stable"), lengths + cost, self.runtime.inference_tokens
            ):
                part = flat.select(chosen)
                batch = Batch.from_flat(
                    part.token_ids, part.segment_ids, part.lengths, device=self.runtime.torch_device
                )
                positions = [wanted(length) for length in part.lengths.tolist()]
                starts = part.offsets[:-1].tolist()
                flat_positions = np.concatenate(
                    [start + of_row for start, of_row in zip(starts, positions, strict=True)]
                )
                of_rows = np.repeat(np.arange(len(positions)), [len(of_row) for of_row in positions])
                with torch.no_grad():
                    hidden = self.model.encoder(batch, read=Read.at(batch, flat_positions), dtype=self.runtime.dtype)
                yield _Part(numbers[chosen], of_rows, hidden)
                progress.advance(len(chosen))
