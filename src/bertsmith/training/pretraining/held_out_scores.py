"""Scores of models at fixed masked positions of held-out text: loss and top-5 accuracy.

A pre-trained model and the counting models of `ngram_baseline` are scored at the same positions of the same rows, with
15 % of the pieces masked as in the paper, whatever share the model was trained with.

N rows, T tokens.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from bertsmith.base.core.errors import CorpusError
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import cut_by_tokens, gather_rows
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.masking import Masker
from bertsmith.training.pretraining.ngram_baseline import CountedScores, NgramBaseline
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.stream import Cursor, PretrainingStream
from bertsmith.training.pretraining.targets import Targets

TOP = 5
_MICRO_TOKENS = 2048


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedScores:
    """Mean loss in nats, the share of right first guesses, and that of pieces among the TOP most likely."""

    loss: float
    accuracy: float
    top: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldOutRows:
    """Masked rows of held-out documents; use `HeldOutRows.of`.

    Attributes:
        segment_ids: int32 [T].
        lengths: int64 [N], tokens of each row.
        targets: the masked rows, the positions and the pieces there.
    """

    segment_ids: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    targets: Targets

    @classmethod
    def of(cls, corpus: Corpus, *, length: int, rows: int) -> "HeldOutRows":
        """At most `rows` rows of at most `length` tokens, the same at every call."""
        held_out = corpus.held_out()
        if held_out is None:
            raise CorpusError(
                expected=f"held-out documents in '{corpus.folder}'", found="none", fix="build it with --held-out"
            )
        settings = PretrainingDataSettings(
            objective="mlm", max_length=length, short_sequence_probability=0.0, dupe_factor=1, seed=0
        )
        stream = PretrainingStream(held_out, settings, corpus.vocabulary)
        unmasked = stream.materialise(stream.take(Cursor(), min(rows, stream.num_instances(0)))[0])
        masked = Masker(corpus.vocabulary, settings).mask_rows(unmasked.token_ids, unmasked.lengths, unmasked.keys)
        return cls(segment_ids=unmasked.segment_ids, lengths=unmasked.lengths, targets=masked)

    @property
    def num_masked(self) -> int:
        """The number of masked positions."""
        return len(self.targets.positions)

    def counted_scores(self, baseline: NgramBaseline) -> tuple[CountedScores, CountedScores]:
        """The scores of the unigram and of the bigram model."""
        targets = self.targets
        unigram = baseline.unigram_scores(targets.target_ids, top=TOP)
        return unigram, baseline.bigram_scores(targets.token_ids, targets.positions, targets.target_ids, top=TOP)

    @torch.inference_mode()
    def scores(self, model: EncoderForPreTraining) -> MaskedScores:
        """The scores of a pre-trained model on CPU, in fp32, without dropout."""
        model.eval()
        targets = self.targets
        nll, first, among = 0.0, 0, 0
        for part in cut_by_tokens(np.argsort(self.lengths, kind="stable"), self.lengths, _MICRO_TOKENS):
            gathered = gather_rows(
                part,
                token_ids=targets.token_ids,
                segment_ids=self.segment_ids,
                lengths=self.lengths,
                wanted=targets.positions,
                wanted_per_row=targets.per_row,
            )
            gold = torch.from_numpy(targets.target_ids[gathered.chosen].astype(np.int64))
            logits = model(gathered.batch, read=gathered.read, masked=torch.arange(len(gold))).mlm_logits
            nll += float(F.cross_entropy(logits, gold, reduction="sum"))
            hits = logits.topk(TOP).indices == gold[:, None]
            first += int(hits[:, 0].sum())
            among += int(hits.sum())
        count = self.num_masked
        return MaskedScores(loss=nll / count, accuracy=first / count, top=among / count)
