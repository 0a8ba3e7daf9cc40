"""The largest differences between the outputs of an exported model and the library's.

An exact export must stay within two limits: one on every output and, with labelled examples, one on the score. The
first does not imply the second: an answer flips wherever two outputs are closer together than the two sides are, which
may happen anywhere in a model whose outputs differ little relative to their size. But one such tie is noise, and on few
examples it costs more than any sensible limit; how much depends on the metric. So a single changed answer is accepted,
whatever it costs.
"""

from bertsmith.base.core.errors import CheckpointError
from bertsmith.inference.export.record import Comparison

FP32_LIMIT = 1e-4  # largest difference, in units of the spread
METRIC_LIMIT = 0.001  # largest loss of the task's score, as a fraction
TIES = 1  # answers that may change, whatever that costs in the score
INT8_LIMIT = 0.2  # mean difference, in units of the spread
INT8_METRIC_LIMIT = 0.004  # largest loss of the task's score, as a fraction


def require_equal(comparison: Comparison, subject: str, limit: float | None = None) -> dict[str, float]:
    """Checks an exact export and returns the limits it meets: on the outputs and, if there is one, on the score.

    Args:
        limit: overrides `FP32_LIMIT`; the limit on the score is unchanged.
    """
    most = FP32_LIMIT if limit is None else limit
    for difference in comparison.differences:
        # Written so that NaN fails, too.
        if not difference.largest <= most:
            raise CheckpointError(
                expected=f"{difference.output} of {subject} within {most:g} of their spread ({difference.spread:.4g}) "
                "of the library's",
                found=f"a difference of {difference.largest:.3g}",
                fix="nothing was written; try other versions of the packages, or allow more with --limit",
            )
    if comparison.loss is None:
        return {"largest": most}
    is_tie = comparison.changed is not None and comparison.changed <= TIES
    if not comparison.loss <= METRIC_LIMIT and not is_tie:
        raise CheckpointError(
            expected=f"a {comparison.metric} of {subject} at most {METRIC_LIMIT:g} below the library's"
            + ("" if comparison.changed is None else f", or at most {TIES} changed answer"),
            found=comparison.scores,
            fix="nothing was written; try other versions of the packages, or compare on more examples",
        )
    ties = {} if comparison.changed is None else {"ties": TIES}
    return {"largest": most, "metric_loss": METRIC_LIMIT, **ties}


def require_near(comparison: Comparison, subject: str, limit: float | None = None) -> dict[str, float]:
    """Checks a quantized export and returns the limit it meets: on the score if there is one, else on the outputs.

    Args:
        limit: overrides `INT8_METRIC_LIMIT` or `INT8_LIMIT`.
    """
    fix = "nothing was written; omit --int8, or allow more with --limit"
    if comparison.loss is not None:
        most = INT8_METRIC_LIMIT if limit is None else limit
        if not comparison.loss <= most:
            raise CheckpointError(
                expected=f"a {comparison.metric} of {subject} at most {most:g} below the library's",
                found=comparison.scores,
                fix=fix,
            )
        return {"metric_loss": most}
    most = INT8_LIMIT if limit is None else limit
    for difference in comparison.differences:
        if not difference.mean <= most:
            raise CheckpointError(
                expected=f"{difference.output} of {subject} within {most:g} of their spread ({difference.spread:.4g}) "
                "of the library's on average",
                found=f"a mean difference of {difference.mean:.3g}",
                fix=fix,
            )
    return {"mean": most}
