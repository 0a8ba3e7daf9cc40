"""The held-out loss while the demo trains: a line on the terminal at each evaluation, and a page that reloads itself.

Both are cheap, because their time is taken from training. The page with charts replaces this one at the end.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from bertsmith.base.core.progress import tell_row
from bertsmith.base.pages import html
from bertsmith.training.loop.evaluations import PREFIX

LOSS, LEVEL = f"{PREFIX}mlm_loss", f"{PREFIX}unigram_entropy"
WIDTH = 40  # characters of a bar
SCALE = 1.1  # the loss of a full bar, as a multiple of the first loss
RELOAD_SECONDS = 5

_EXPLAINED = "loss of masked pieces on held-out text; | marks the best possible with token frequencies alone"


class LiveCurve:
    """Receives the evaluations of a run and shows them; pass it to `pretrain` as `on_evaluation`."""

    def __init__(self, page: Path, title: str) -> None:
        self.page, self.title = page, title
        self.rows: list[str] = []
        self._scale: float | None = None

    def __call__(self, step: int, values: Mapping[str, float]) -> None:
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
