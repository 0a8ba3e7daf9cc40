"""The lines that sum up a finished pre-training run."""

from collections.abc import Mapping

from bertsmith.base.core.progress import counted, duration
from bertsmith.training.loop.evaluations import PREFIX
from bertsmith.training.loop.loop import TIMES
from bertsmith.training.loop.result import TrainResult

# Values of a log line that are no scores.
_OF_THE_WORK = ("tokens", "sequences", "gradient_norm", "learning_rate", "skipped", *TIMES)


def summary_lines(result: TrainResult) -> list[str]:
    """The lines that the command prints: the work, the scores of the last logged steps, and those on held-out rows."""
    speed = result.metrics.get("tokens_per_second")
    work = f"{counted(result.steps, 'step')}, {counted(result.tokens, 'token')} in {duration(result.seconds)}"
    lines = [work + (f", {speed:,.0f} tokens/s at the end" if speed else "")]
    last = {name: value for name, value in result.metrics.items() if not name.startswith(PREFIX)}
    held_out = {name.removeprefix(PREFIX): value for name, value in result.scores.items()}
    kept = "" if result.best_step is None else f", after step {result.best_step:,}, the best"
    for title, values in (("last training steps", last), (f"held out{kept}", held_out)):
        if shown := _in_words(values):
            lines.append(f"{title}: {shown}")
    return lines


def _in_words(values: Mapping[str, float]) -> str:
    """The scores among the values of a log line; a sum of losses is left out if it has a single term."""
    shown = []
    for name, value in values.items():
        of_rows = name.removesuffix("loss")
        terms = [term for term in values if term.startswith(of_rows) and term.endswith("_loss") and term != name]
        is_repeated = name.endswith("loss") and any(values[term] == value for term in terms)
        if name not in _OF_THE_WORK and not is_repeated:
            shown.append(f"{name.replace('unigram_entropy', 'loss of token frequencies alone')} {value:.4g}")
    return ", ".join(shown)
