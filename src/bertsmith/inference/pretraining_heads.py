"""What a pre-trained model can tell without further training: what is missing, and what comes next.

Letters: N rows, M gaps, T tokens of a batch. Rows are sorted by length and cut by tokens, so nothing is padded and
memory is bounded whatever comes. Equal rows are computed once.

Source: Devlin et al. (2018), section 3.1; Taylor (1953), "Cloze procedure", for the task of filling gaps.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from bertsmith.checkpoints.assembly import load_pretrained
from bertsmith.checkpoints.model_folder import ModelFolder, no_vocabulary
from bertsmith.encoding.units import Ints
from bertsmith.errors import CheckpointError, InputError
from bertsmith.model.batch import Batch, Read, cut_by_tokens, rows_index
from bertsmith.model.heads import EncoderForPreTraining
from bertsmith.model.parameter_names import part_of
from bertsmith.model.prepared import prepare
from bertsmith.runtime import Runtime, choose_inference
from bertsmith.text.encoded import Encoded
from bertsmith.text.pack import PackedRows, pack_rows
from bertsmith.text.tokenizer import Tokenizer

MASK = "[MASK]"
_GAP = 8  # tokens that a gap counts for: its logits are as many numbers as the vocabulary has pieces


@dataclasses.dataclass(frozen=True)
class Filling:
    """One candidate for a gap.

    Attributes:
        piece: the word piece.
        probability: its softmax over the whole vocabulary.
    """

    piece: str
    probability: float


@dataclasses.dataclass(frozen=True)
class Continuation:
    """How likely one text follows another.

    Attributes:
        text: the second text.
        probability: that it follows, by the next-sentence head.
        cut_tokens: tokens of the pair that did not fit and were cut.
    """

    text: str
    probability: float
    cut_tokens: int


class PretrainedPredictor:
    """A pre-trained model ready to answer."""

    def __init__(self, model: EncoderForPreTraining, tokenizer: Tokenizer, runtime: Runtime) -> None:
        self.model = model.to(runtime.torch_device)
        self.tokenizer, self.runtime = tokenizer, runtime

    @staticmethod
    def load(
        source: str | Path | ModelFolder, *, device: str = "auto", precision: str = "fp32", needs: Sequence[str] = ()
    ) -> "PretrainedPredictor":
        """A predictor from a model folder, a Google checkpoint, or a hub id.

        Args:
            needs: the heads that must have been trained, "mlm" or "nsp".

        Raises:
            CheckpointError: the model cannot be read, has no vocabulary, or lacks a head that is needed.
        """
        loaded = load_pretrained(source)
        place = source.path if isinstance(source, ModelFolder) else source
        trained = {part_of(name) for name in loaded.model.state_dict()} - {*loaded.new_heads}
        for head in needs:
            if head not in trained:
                raise CheckpointError(
                    expected=f"a model with a trained {head} head in '{place}'",
                    found="none",
                    fix="name a pre-trained model that has it",
                )
        if loaded.tokenizer is None:
            raise no_vocabulary(place)
        runtime = choose_inference(device, precision)
        runtime.tell()
        prepare(loaded.model.to(runtime.torch_device), runtime)
        return PretrainedPredictor(loaded.model, loaded.tokenizer, runtime)

    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """The `top` pieces for each [MASK] of a text, the likeliest first; gaps are filled independently.

        [MASK] is understood by every model, next to its own spelling of the mask (`<mask>` for RoBERTa).

        Raises:
            CheckpointError: the model reads from left to right.
            InputError: the text has no [MASK], or is longer than the model reads.
        """
        return self.fill_texts([text], top)[0]

    def next_sentence(self, first: str, seconds: Sequence[str]) -> list[Continuation]:
        """How likely each of `seconds` follows `first`, in their order; see `judge_pairs`.

        Raises:
            InputError: a text is empty.
        """
        return self.judge_pairs([(first, second) for second in seconds])

    def fill_each(self, texts: Sequence[str], places: Sequence[str], top: int = 5) -> Iterator[list[list[Filling]]]:
        """As `fill_texts`, but what stands before a text that cannot be filled is answered before the error.

        Args:
            places: what the texts are called in the error.

        Raises:
            CheckpointError: the model reads from left to right.
            InputError: a text has no [MASK], or is longer than the model reads; the message names its place.
        """
        encoded = self.tokenizer.encode_batch(texts, special_tokens=True)
        wrong = self._first_unfit(texts, encoded, places)
        yield from self.fill_texts(texts if wrong is None else texts[: wrong[0]], top)
        if wrong is not None:
            raise wrong[1]

    @torch.inference_mode()
    def fill_texts(self, texts: Sequence[str], top: int = 5) -> list[list[list[Filling]]]:
        """For each text, for each [MASK] in it, the `top` pieces, the likeliest first; gaps are filled independently.

        Raises:
            CheckpointError: the model reads from left to right.
            InputError: a text has no [MASK], or is longer than the model reads; the message counts texts from 1.
        """
        if self.model.config.is_causal:
            raise CheckpointError(
                expected="a model that was trained to fill masks",
                found="a left-to-right one, which predicts the next piece",
                fix="name a model trained with masks",
            )
        if not texts:
            return []
        vocabulary, limit = self.tokenizer.vocabulary, self.model.encoder.max_tokens
        encoded = self.tokenizer.encode_batch(texts, special_tokens=True)
        if wrong := self._first_unfit(texts, encoded, [f"text {number}" for number in range(1, len(texts) + 1)]):
            raise wrong[1]
        rows, which = pack_rows(
            encoded, template=self.tokenizer.template, max_length=limit, model_limit=limit
        ).distinct()
        is_gap = rows.token_ids == vocabulary.mask_id
        gaps_of_row = np.add.reduceat(is_gap.astype(np.int64), rows.offsets[:-1])
        found: list[list[list[Filling]]] = [[] for _ in range(len(rows))]
        for part, batch, index in self._batches(rows, np.maximum(rows.lengths, _GAP * gaps_of_row)):
            gaps = np.flatnonzero(is_gap[index])
            masked = torch.arange(len(gaps), device=self.runtime.torch_device)
            output = self.model(batch, read=Read.at(batch, gaps), masked=masked, dtype=self.runtime.dtype)
            assert output.mlm_logits is not None
            chances = output.mlm_logits.float().softmax(-1).topk(min(top, len(vocabulary)))
            row_of_gap = np.repeat(part, gaps_of_row[part]).tolist()
            for row, ids, values in zip(row_of_gap, chances.indices.tolist(), chances.values.tolist(), strict=True):
                found[row].append(
                    [Filling(vocabulary.pieces[id], value) for id, value in zip(ids, values, strict=True)]
                )
        return [[list(gap) for gap in found[row]] for row in which.tolist()]

    @torch.inference_mode()
    def judge_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Continuation]:
        """How likely the second text of each pair follows its first, in their order.

        A pair that is longer than the model reads loses the end of its longer text; the answer counts the tokens.

        Raises:
            InputError: a text is empty; the message counts pairs from 1.
        """
        if not pairs:
            return []
        for number, pair in enumerate(pairs, start=1):
            if not all(text.strip() for text in pair):
                raise InputError(
                    expected=f"two texts in pair {number}", found="an empty one", fix="give both sentences"
                )
        limit = self.model.encoder.max_tokens
        firsts, seconds = zip(*pairs, strict=True)
        rows = pack_rows(
            self.tokenizer.encode_batch(firsts),
            self.tokenizer.encode_batch(seconds),
            template=self.tokenizer.template,
            max_length=limit,
            model_limit=limit,
        )
        different, which = rows.distinct()
        chances = np.empty(len(different))
        for part, batch, _ in self._batches(different, different.lengths):
            every = torch.arange(len(part), device=self.runtime.torch_device)
            output = self.model(batch, read=Read.first(batch), first=every, dtype=self.runtime.dtype)
            assert output.nsp_logits is not None
            chances[part] = output.nsp_logits.float().softmax(-1)[:, 0].cpu().numpy()
        return [
            Continuation(second, chance, cut)
            for second, chance, cut in zip(seconds, chances[which].tolist(), rows.cut_by_row.tolist(), strict=True)
        ]

    def _first_unfit(
        self, texts: Sequence[str], encoded: Encoded, places: Sequence[str]
    ) -> tuple[int, InputError] | None:
        """The number of the first text that cannot be filled, from 0, and why; None where all can."""
        room = self.model.encoder.max_tokens - self.tokenizer.template.num_special(1)
        masks_before = np.concatenate([[0], np.cumsum(encoded.ids == self.tokenizer.vocabulary.mask_id)])
        has_gap = np.diff(masks_before[encoded.offsets]) > 0
        unfit = np.flatnonzero(~has_gap | (encoded.lengths > room))
        if not len(unfit):
            return None
        number = int(unfit[0])
        if encoded.lengths[number] > room:
            return number, InputError(
                expected=f"at most {room} pieces in {places[number]}, what the model reads",
                found=f"{encoded.lengths[number]}",
                fix="shorten the text",
            )
        return number, InputError(
            expected=f"a {MASK} in {places[number]}",
            found=repr(texts[number][:60]),
            fix=f"write {MASK} where a word is missing",
        )

    def _batches(self, rows: PackedRows, costs: np.ndarray) -> Iterator[tuple[Ints, Batch, Ints]]:
        """Batches of rows: which rows, int64 [n], as the model reads them, and the places of their tokens, int64 [T].

        Args:
            costs: what each row counts for, [N].
        """
        order = np.argsort(rows.lengths, kind="stable")
        for part in cut_by_tokens(order, costs.astype(np.int64), self.runtime.inference_tokens):
            index = rows_index(rows.lengths.astype(np.int64), part)
            batch = Batch.from_flat(
                rows.token_ids[index],
                rows.segment_ids[index],
                rows.lengths[part],
                device=self.runtime.torch_device,
            )
            yield part, batch, index
