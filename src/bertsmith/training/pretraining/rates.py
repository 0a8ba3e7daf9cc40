"""Statistics of pre-training data, measured on its rows: masking, pairs, lengths. Check them before a long run."""

from dataclasses import dataclass, fields

import numpy as np

from bertsmith.base.core.progress import counted
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.stream import Cursor, PretrainingStream

_AT_ONCE = 1000  # rows; bounds the memory


@dataclass(frozen=True, kw_only=True)
class RatesReport:
    """Counts over the measured rows; every percentage in the table is a ratio of two of them.

    Attributes:
        kept: predicted positions left unchanged, including those whose random piece happened to be the same.
        special_predicted: predicted positions that are `[CLS]` or `[SEP]`; must be 0.
        rows_without_predictions: rows without any predicted position, although the objective masks.
        positive: rows with label 1: random next, or swapped.
        left_out_documents: documents of the corpus that are too short for a row.
        length_counts: the number of rows with 0, 1, 2 ... `max_length` tokens.
    """

    objective: str
    rows: int
    tokens: int
    predicted: int
    masked: int
    kept: int
    replaced: int
    special_predicted: int
    rows_without_predictions: int
    positive: int
    negative: int
    truncated_rows: int
    truncated_tokens: int
    left_out_documents: int
    length_counts: tuple[int, ...]

    def lines(self) -> list[str]:
        """The lines of the table, for printing."""
        lengths = np.repeat(np.arange(len(self.length_counts)), self.length_counts)
        quartiles = " ".join(str(int(value)) for value in np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1], method="lower"))
        table = [
            ("rows measured", f"{self.rows:,} ({self.objective})"),
            ("tokens", f"{self.tokens:,}, {self.tokens / self.rows:.1f} per row"),
            ("row lengths: min, quartiles, max", quartiles),
            ("rows of full length", _share(self.length_counts[-1], self.rows)),
        ]
        if self.predicted:
            table += [
                ("predicted positions", f"{_share(self.predicted, self.tokens)} of the tokens"),
                ("  replaced by [MASK]", _share(self.masked, self.predicted)),
                ("  kept", _share(self.kept, self.predicted)),
                ("  replaced by another piece", _share(self.replaced, self.predicted)),
                ("  at [CLS] or [SEP]", f"{self.special_predicted:,}"),
                ("rows without predictions", f"{self.rows_without_predictions:,}"),
            ]
        if self.positive + self.negative:
            label = OBJECTIVES[self.objective].positive_pairs or ""
            table.append((label, _share(self.positive, self.positive + self.negative)))
        lost = counted(self.truncated_tokens, "token")
        table += [
            ("truncated rows", f"{_share(self.truncated_rows, self.rows)}, {lost} lost"),
            ("documents too short for a row", f"{self.left_out_documents:,}"),
        ]
        return [f"{name:<36} {value}" for name, value in table]


def measure_rates(stream: PretrainingStream, rows: int = 10_000) -> RatesReport:
    """The statistics of the first `rows` rows of a stream."""
    objective = OBJECTIVES[stream.settings.objective]
    find_targets = objective.find_targets(stream.vocabulary, stream.settings)
    special = [stream.vocabulary.cls_id, stream.vocabulary.sep_id]
    others = ("objective", "rows", "left_out_documents", "length_counts")
    counts = {field.name: 0 for field in fields(RatesReport) if field.name not in others}
    lengths = np.zeros(stream.settings.max_length + 1, dtype=np.int64)
    cursor = Cursor()
    for start in range(0, rows, _AT_ONCE):
        plan, cursor = stream.take(cursor, min(_AT_ONCE, rows - start))
        batch = stream.materialise(plan)
        seen = {
            "tokens": len(batch.token_ids),
            "positive": (batch.labels == 1).sum(),
            "negative": (batch.labels == 0).sum(),
            "truncated_rows": (plan.cut > 0).sum(),
            "truncated_tokens": plan.cut.sum(),
        }
        if objective.masks:
            result = find_targets(batch.token_ids, batch.lengths, batch.keys)
            now = result.token_ids[result.positions]
            masked, kept = now == stream.vocabulary.mask_id, now == result.target_ids
            seen |= {
                "predicted": len(now),
                "masked": (masked & ~kept).sum(),
                "kept": kept.sum(),
                "replaced": (~masked & ~kept).sum(),
                "special_predicted": np.isin(result.target_ids, special).sum(),
                "rows_without_predictions": (result.per_row == 0).sum(),
            }
        for name, value in seen.items():
            counts[name] += int(value)
        lengths += np.bincount(batch.lengths, minlength=len(lengths))
    return RatesReport(
        objective=objective.name,
        rows=rows,
        left_out_documents=stream.left_out,
        length_counts=tuple(lengths.tolist()),
        **counts,
    )


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.2f} % ({part:,})"
