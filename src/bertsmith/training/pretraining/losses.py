"""Losses that the pre-training workloads share, and the parameters that are trained.

Letters: M predicted positions, V vocabulary.
"""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.our_names import PREFIX, part_of, plain
from bertsmith.text.corpus.frequencies import smoothed_frequencies
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.objectives import Objective
from bertsmith.training.pretraining.stream import Documents


def factor_of_layer(model: EncoderForPreTraining, name: str, decay: float) -> float:
    """`decay` to the power of the number of layers above a parameter; 1 for the last layer and what is above it."""
    if not name.startswith(PREFIX):
        return 1.0
    encoder = model.encoder
    return float(decay ** (encoder.num_layers - min(encoder.height(plain(name)), encoder.num_layers)))


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
