"""The result of the demo, and the lines and tables that show it."""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import short_repr, tell_row
from bertsmith.base.pages import html
from bertsmith.training.loop.callbacks import Callback
from bertsmith.training.loop.evaluations import PREFIX
from bertsmith.training.pretraining.held_out_scores import TOP, MaskedScores
from bertsmith.training.pretraining.ngram_baseline import CountedScores
from bertsmith.training.pretraining.report import Samples

LOSS, LEVEL = f"{PREFIX}mlm_loss", f"{PREFIX}unigram_entropy"
WIDTH = 40  # characters of a bar
SCALE = 1.1  # the loss of a full bar, as a multiple of the first loss
RELOAD_SECONDS = 5

_EXPLAINED = "loss of masked pieces on held-out text; | marks the best possible with token frequencies alone"
Interval = tuple[float, float]


class LiveCurve(Callback):
    """Shows the evaluations of a pre-training while it runs."""

    def __init__(self, page: Path, title: str) -> None:
        self.page, self.title = page, title
        self.rows: list[str] = []
        self._scale: float | None = None

    def on_evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Shows an evaluation."""
        loss, level = values[LOSS], values[LEVEL]
        if self._scale is None:
            self._scale = SCALE * max(level, loss if math.isfinite(loss) else level)
            tell_row(_EXPLAINED)
        row = f"  step {step:>7,} | {loss:5.2f} nats | {bar(loss, level, self._scale)} | frequencies alone {level:.2f}"
        self.rows.append(row)
        tell_row(row)
        about = html.note("Training. This page reloads itself; at the end it has the charts and the results.")
        rows = html.section("Held-out loss so far", html.note(_EXPLAINED), html.lines(self.rows))
        html.write_page(self.page, self.title, about, rows, reload_seconds=RELOAD_SECONDS)


def bar(value: float, level: float, scale: float) -> str:
    """A value from 0 to `scale` as WIDTH characters, with a mark at the place of a level.

    >>> bar(4.0, 6.0, 8.0)
    '####################---------|----------'
    """
    filled = 0 if math.isnan(value) else round(WIDTH * min(1.0, value / scale))
    mark = max(0, round(WIDTH * level / scale) - 1)
    drawn = "#" * filled + "-" * (WIDTH - filled)
    return f"{drawn[:mark]}|{drawn[mark + 1 :]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierResult:
    """The result of training the classifier."""

    model: Path
    labels: Sequence[str]  # the names of the sources
    accuracy: float  # the fraction of the dev sentences that got the right label
    interval: Interval | None  # its 95% confidence interval over the dev sentences; None if all draws are equal
    num_dev: int
    most_frequent: float  # the accuracy of always answering the most frequent label of the training sentences
    # name, accuracy and interval of the baselines on the same sentences
    baselines: Sequence[tuple[str, float, Interval | None]] = ()

    def systems(self) -> list[tuple[str, str]]:
        """Each system with its accuracy as text: the model, the most frequent label, the baselines."""
        return [
            ("fine-tuned model", _shown(self.accuracy, self.interval)),
            ("most frequent label", _shown(self.most_frequent, None)),
            *((name, _shown(accuracy, interval)) for name, accuracy, interval in self.baselines),
        ]

    def line(self) -> str:
        """One line with all of it."""
        (_, model), *others = self.systems()
        against = "; ".join(f"{name} {shown}" for name, shown in others)
        return f"which of {', '.join(self.labels)} a sentence is from: accuracy {model} on {self.num_dev:,}; {against}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gap:
    """A held-out sentence with one piece masked."""

    text: str  # the sentence with [MASK] in it
    hidden: str
    guesses: tuple[tuple[str, float], ...]  # the predictions of the model with their probabilities, most likely first


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The result of the demo. All scores of masked pieces are for the same positions of held-out documents."""

    report: Path
    model: Path
    num_masked: int
    held_out_loss: float  # the masked-LM loss of the model in nats
    unigram_entropy: float  # the loss in nats of a model that only knows token frequencies
    bigram_loss: float  # the loss in nats of a model that also knows which pieces occur next to each other
    top_five: float  # the top-5 accuracy of the model on the masked pieces
    unigram_top_five: float  # the same for token frequencies
    bigram_top_five: float  # the same for pieces next to each other
    gaps: Sequence[Gap]
    classifier: ClassifierResult | None  # which source a sentence comes from; None without
    no_classifier: str  # why there is none; empty with one
    seconds: float  # the duration of the whole demo

    __repr__ = short_repr

    def lines(self) -> list[str]:
        """The lines that the command prints; the last one is the command that serves the models."""
        lines = [
            f"masked-LM loss on held-out text: {self.held_out_loss:.2f} nats; "
            f"the bigram model of neighboring pieces: {self.bigram_loss:.2f}; "
            f"token frequencies: {self.unigram_entropy:.2f}",
            f"top-5 accuracy on masked pieces: {self.top_five:.1%} of {self.num_masked:,}; "
            f"the bigram model: {self.bigram_top_five:.1%}; token frequencies: {self.unigram_top_five:.1%}",
        ]
        if self.held_out_loss >= self.unigram_entropy:
            lines.append("the model does not beat token frequencies yet; give it more --minutes or a less busy machine")
        elif self.held_out_loss >= self.bigram_loss:
            lines.append("the model does not beat the bigram model yet; give it more --minutes or a less busy machine")
        for gap in self.gaps[:6]:
            guesses = ", ".join(f"{piece} {chance:.0%}" for piece, chance in gap.guesses[:3])
            lines += [f"  {gap.text}", f"    masked: {gap.hidden}; predicted: {guesses}"]
        lines.append(f"no classifier: {self.no_classifier}" if self.classifier is None else self.classifier.line())
        models = [self.model, *([] if self.classifier is None else [self.classifier.model])]
        lines += [f"model: {models[0]}", *(f"classifier: {model}" for model in models[1:])]
        lines.append(f"report: {self.report}")
        serve = " ".join(f"--model {shlex.quote(str(model))}" for model in models)
        return [*lines, f"try it in a browser: bertsmith serve {serve}"]


def tables(
    scores: MaskedScores,
    counted: tuple[CountedScores, CountedScores],
    num_masked: int,
    gaps: Sequence[Gap],
    classifier: ClassifierResult | None,
    no_classifier: str,
) -> list[Samples]:
    """The tables of the report."""
    unigram, bigram = counted
    systems = (("model", scores), ("bigram model of neighboring pieces", bigram), ("token frequencies", unigram))
    return [
        Samples(
            title=f"{num_masked:,} masked pieces of held-out text",
            header=("", "loss, nats", f"top-{TOP} accuracy"),
            rows=[(name, f"{system.loss:.3f}", f"{system.top:.1%}") for name, system in systems],
        ),
        Samples(
            title="Held-out sentences with one word masked",
            header=("sentence", "masked", "predicted"),
            rows=[
                (gap.text, gap.hidden, ", ".join(f"{piece} {chance:.0%}" for piece, chance in gap.guesses))
                for gap in gaps
            ],
        ),
        Samples(title="Which source a sentence is from", rows=[("no classifier", no_classifier)])
        if classifier is None
        else Samples(
            title=f"Which of {', '.join(classifier.labels)} a sentence is from",
            header=("", f"accuracy on {classifier.num_dev:,} sentences (95% interval)"),
            rows=classifier.systems(),
        ),
    ]


def _shown(accuracy: float, interval: Interval | None) -> str:
    return f"{accuracy:.1%}" + ("" if interval is None else f" ({interval[0]:.1%} to {interval[1]:.1%})")
