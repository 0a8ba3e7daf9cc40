"""A mention-pair scorer on top of an encoder: a custom model and loss in the package's training loop."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from mentions import Mentions, encoded
from torch import Tensor, nn

from bertsmith import WordPieceTokenizer
from bertsmith.base.core.randomness import generator
from bertsmith.models.encoders.bert import BertModel
from bertsmith.models.parts.batch import Batch
from bertsmith.training.loop.loop import train
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.workload import StepPlan, Workload

BATCH_SIZE = 16


class PairScorer(nn.Module):
    """An encoder with a score for each pair of pronoun and candidate; "neither" has a score of 0."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert, width = bert, bert.config.hidden_size
        self.score = nn.Sequential(nn.Linear(3 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, batch: Batch, spans: Tensor) -> Tensor:
        """Logits [E, 3] for the two candidates and neither, from the token spans (start, end) [E, 3, 2]."""
        sums = F.pad(self.bert(batch).cumsum(0), (0, 0, 1, 0))  # [T + 1, D]
        means = (sums[spans[..., 1]] - sums[spans[..., 0]]) / (spans[..., 1:] - spans[..., :1])  # [E, 3, D]
        pronoun, names = means[:, :1].expand(-1, 2, -1), means[:, 1:]
        return F.pad(self.score(torch.cat([pronoun, names, pronoun * names], -1)).squeeze(-1), (0, 1))


class Scoring(Workload):
    """The workload for the training loop; see `bertsmith.training.loop.Workload`."""

    def __init__(self, model: PairScorer, tokenizer: WordPieceTokenizer, group: Sequence[Mentions]) -> None:
        self.model, self.tokenizer, self.group = model, tokenizer, group

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The texts of a step: batch, spans and answers."""
        drawn = generator(1, "texts", step).choice(len(self.group), size=BATCH_SIZE)
        chosen = [self.group[number] for number in drawn.tolist()]
        batch, spans = encoded(chosen, self.tokenizer)
        answers = torch.tensor([one.answer for one in chosen])
        return StepPlan(micro_batches=[(batch, spans, answers)], tokens=batch.num_tokens, sequences=BATCH_SIZE)

    def loss(self, model: nn.Module, micro_batch: tuple[Batch, Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss of the step."""
        batch, spans, answers = micro_batch
        return F.cross_entropy(model(batch, spans), answers), {}

    def summarize(self, sums: dict[str, float]) -> dict[str, float]:
        """Adds nothing to the logged loss."""
        return {}


def fit_scorer(
    bert: BertModel, tokenizer: WordPieceTokenizer, group: Sequence[Mentions], epochs: int, rate: float
) -> PairScorer:
    """A scorer trained on the texts, together with the encoder, which is changed in place."""
    torch.manual_seed(1)  # for the initial parameters of the scorer
    scorer = PairScorer(bert)
    bert.pooler.requires_grad_(False)
    steps = max(2, epochs * len(group) // BATCH_SIZE)
    settings = TrainSettings(steps=steps, learning_rate=rate, warmup_share=0.1)
    with tempfile.TemporaryDirectory() as folder:
        train(Scoring(scorer, tokenizer, group), settings, RunFolder.create(Path(folder) / "run", {}))
    return scorer.eval()
