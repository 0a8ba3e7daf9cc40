"""What the workloads of pre-training share: losses, and the parameters that are trained.

Letters: M predicted positions, V vocabulary.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.heads.sampled_softmax import PieceSampler
from bertsmith.models.parts.part_names import PREFIX, part_of, plain
from bertsmith.text.corpus.frequencies import entropy, smoothed_frequencies
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.loop.lanes import count_lanes
from bertsmith.training.loop.workload import Workload
from bertsmith.training.pretraining.objectives import OBJECTIVES, Objective
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.stream import Documents


def unigram_loss(counts: npt.NDArray[np.int64], documents: Documents, vocabulary: Vocabulary) -> float:
    """The loss in nats, on other documents, of a model that only knows how often each piece occurs in the corpus."""
    seen = np.zeros(len(counts), dtype=np.int64)
    for document in range(documents.num_documents):
        seen += np.bincount(documents.document_tokens(document), minlength=len(counts))
    frequencies = smoothed_frequencies(counts, vocabulary.spare_ids)
    return float(-(seen * np.log(frequencies)).sum() / seen.sum())


def negative_log_likelihood(logits: Tensor, targets: Tensor, name: str, sums: dict[str, Tensor]) -> Tensor:
    """The summed loss in nats, computed in at least fp32; adds loss, count and correct predictions to `sums`."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    nll = F.cross_entropy(exact, targets, reduction="sum")
    sums[f"{name}_nll"] = nll.detach()
    sums[f"{name}_correct"] = (exact.detach().argmax(-1) == targets).sum()  # in fp32 faster than in bf16
    sums[f"{name}_count"] = torch.full((), len(targets), device=targets.device)
    return nll


def freeze_unused(model: EncoderForPreTraining, objective: Objective) -> None:
    """Freezes the parameters that the objective does not train."""
    for name, parameter in model.named_parameters():
        part = part_of(name)
        parameter.requires_grad_(part is None or part in objective.trained_parts)


class CorpusWorkload(Workload):
    """A workload whose examples are of a corpus.

    Args:
        unigram: int64 [V], the count of each piece in the corpus, for the unigram baseline.
    """

    model: EncoderForPreTraining

    def __init__(
        self,
        model: EncoderForPreTraining,
        held_out: Documents | None,
        vocabulary: Vocabulary,
        data: PretrainingDataSettings,
        runtime: Runtime,
        run: PretrainingRunSettings,
        unigram: npt.NDArray[np.int64] | None,
    ) -> None:
        self.model = model.to(runtime.torch_device)
        self.data, self.run, self.runtime, self.precision = data, run, runtime, runtime.precision
        self.micro_tokens = run.micro_tokens or runtime.training_tokens
        self.lanes = count_lanes(self.model)
        self.objective = OBJECTIVES[data.objective]
        freeze_unused(self.model, self.objective)
        self._sampler: PieceSampler | None = None
        if run.sampled_pieces is not None:
            counts = np.zeros(len(vocabulary), dtype=np.int64) if unigram is None else unigram
            self._sampler = PieceSampler(counts, run.sampled_pieces, data.seed, runtime.torch_device)
        self.unigram_entropy = None if unigram is None else entropy(unigram)
        self._held_out_unigram: float | None = None
        if held_out is not None and held_out.num_documents and unigram is not None:
            self._held_out_unigram = unigram_loss(unigram, held_out, vocabulary)

    def rate_factor(self, name: str) -> float:
        """The layer decay to the power of the number of layers above the parameter; 1 for the last one and heads."""
        decay, encoder = self.run.layer_decay, self.model.encoder
        if decay is None or not name.startswith(PREFIX):
            return 1.0
        return float(decay ** (encoder.num_layers - min(encoder.height(plain(name)), encoder.num_layers)))

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The values of a log line, from the sums of a step or an evaluation; losses in nats, without penalties."""
        line = self.own_figures(sums)
        return line if self.unigram_entropy is None else {**line, "unigram_entropy": self.unigram_entropy}

    def own_figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The figures of the model, from the sums."""
        return self.objective.figures(sums)

    def held_out_figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The figures of an evaluation: as `summarize`, with perplexities and the unigram loss on this text."""
        figures = self.summarize(sums)
        figures |= self.objective.perplexities(figures)
        if self._held_out_unigram is not None:
            figures["unigram_entropy"] = self._held_out_unigram
        return figures
