"""What a pre-trained model can tell without further training: what is missing, and what comes next.

Source: Devlin et al. (2018), section 3.1; Taylor (1953), "Cloze procedure", for the task of filling gaps.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from bertsmith.checkpoints.pretrained import load_pretrained
from bertsmith.errors import CheckpointError, InputError
from bertsmith.model.batch import Batch, Read
from bertsmith.model.heads import BertForPreTraining
from bertsmith.model.prepared import prepare
from bertsmith.progress import warn
from bertsmith.runtime import Runtime, choose_inference
from bertsmith.text.pack import PackedRows, pack_rows
from bertsmith.text.wordpiece import Tokenizer

MASK = "[MASK]"


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

    def __init__(self, model: BertForPreTraining, tokenizer: Tokenizer, runtime: Runtime) -> None:
        self.model = model.to(runtime.torch_device)
        self.tokenizer, self.runtime = tokenizer, runtime

    @staticmethod
    def load(
        source: str, *, device: str = "auto", precision: str = "fp32", needs: Sequence[str] = ()
    ) -> "PretrainedPredictor":
        """A predictor from a model folder, a Google checkpoint, or a hub id.

        Args:
            needs: the heads that must have been trained, "mlm" or "nsp".

        Raises:
            CheckpointError: the model cannot be read, has no vocabulary, or lacks a head that is needed.
        """
        loaded = load_pretrained(source)
        for head in needs:
            if head in loaded.new_heads:
                raise CheckpointError(
                    expected=f"a model with a trained {head} head in '{source}'",
                    found="none",
                    fix="name a pre-trained model that has it",
                )
        if loaded.tokenizer is None:
            raise CheckpointError(
                expected=f"a vocabulary beside the model in '{source}'",
                found="no vocab.txt",
                fix="put the vocab.txt of the model there",
            )
        runtime = choose_inference(device, precision)
        if runtime.note:
            warn(runtime.note)
        prepare(loaded.model.to(runtime.torch_device), runtime)
        return PretrainedPredictor(loaded.model, loaded.tokenizer, runtime)

    @torch.inference_mode()
    def fill(self, text: str, top: int = 5) -> list[list[Filling]]:
        """The `top` pieces for each [MASK] of a text, the likeliest first; gaps are filled independently. S42, S43.

        Raises:
            InputError: the text has no [MASK], or is longer than the model reads.
        """
        if self.model.config.is_causal:
            raise CheckpointError(
                expected="a model that was trained to fill masks",
                found="a left-to-right one, which predicts the next piece",
                fix="name a model trained with masks",
            )
        ids = self.tokenizer.encode(text, special_tokens=True)
        room = self.model.config.max_position_embeddings - 2
        if len(ids) > room:
            raise InputError(
                expected=f"a text of at most {room} pieces, what the model reads",
                found=f"{len(ids)} pieces",
                fix="shorten the text",
            )
        rows = self._pack([ids], None)
        gaps = np.flatnonzero(rows.token_ids == self.tokenizer.vocabulary.mask_id)
        if not len(gaps):
            raise InputError(
                expected=f"a text with {MASK}", found=repr(text[:60]), fix=f"write {MASK} where a word is missing"
            )
        batch = self._batch(rows)
        masked = torch.arange(len(gaps), device=self.runtime.torch_device)
        output = self.model(batch, read=Read.at(batch, gaps), masked=masked, dtype=self.runtime.dtype)
        assert output.mlm_logits is not None
        chances = output.mlm_logits.float().softmax(-1).topk(min(top, len(self.tokenizer.vocabulary)))
        pieces = self.tokenizer.vocabulary.pieces
        return [
            [Filling(pieces[id], chance) for id, chance in zip(ids, row, strict=True)]
            for ids, row in zip(chances.indices.tolist(), chances.values.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def next_sentence(self, first: str, seconds: Sequence[str]) -> list[Continuation]:
        """How likely each of `seconds` follows `first`, in their order. S49, S50, S83.

        A pair that is longer than the model reads loses the end of its longer text; the answer counts the tokens.

        Raises:
            InputError: a text is empty.
        """
        for text in (first, *seconds):
            if not text.strip():
                raise InputError(expected="a text", found="an empty one", fix="give both sentences")
        encoded = self.tokenizer.encode_batch([first, *seconds])
        parts = np.split(encoded.ids, encoded.offsets[1:-1])
        rows = self._pack([parts[0]] * len(seconds), parts[1:])
        batch = self._batch(rows)
        every = torch.arange(len(seconds), device=self.runtime.torch_device)
        output = self.model(batch, read=Read.first(batch), first=every, dtype=self.runtime.dtype)
        assert output.nsp_logits is not None
        chances = output.nsp_logits.float().softmax(-1)[:, 0].tolist()
        return [
            Continuation(text, chance, int(cut))
            for text, chance, cut in zip(seconds, chances, rows.cut_by_row, strict=True)
        ]

    def _pack(self, first: list[np.ndarray], second: list[np.ndarray] | None) -> PackedRows:
        limit = self.model.config.max_position_embeddings
        return pack_rows(first, second, vocabulary=self.tokenizer.vocabulary, max_length=limit, model_limit=limit)

    def _batch(self, rows: PackedRows) -> Batch:
        return Batch.from_flat(rows.token_ids, rows.segment_ids, rows.lengths, device=self.runtime.torch_device)
