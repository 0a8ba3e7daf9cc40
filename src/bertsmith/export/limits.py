"""How far an exported model may be from the library.

An exact export must keep two limits: one of every output, and one of the score where there are labelled examples. The
second is not implied by the first: an answer turns wherever two outputs lie nearer together than the two sides do, and
of a model whose outputs differ little beside their size, that may be anywhere. But one such tie is noise, and on few
examples it costs more than any sensible limit: how much depends on the metric. So a single answer that changed
is let pass, whatever it costs.
"""

from bertsmith.errors import CheckpointError
from bertsmith.export.record import Comparison

FP32_LIMIT = 1e-4  # largest difference, in units of the spread
METRIC_LIMIT = 0.001  # what the task's score, as a share, may lose
TIES = 1  # answers that may change, whatever the score loses by that
INT8_LIMIT = 0.2  # mean difference, in units of the spread
INT8_METRIC_LIMIT = 0.004  # what the task's score, as a share, may lose


def require_equal(found: Comparison, what: str, limit: float | None = None) -> dict[str, float]:
    """The limits that an exact export keeps: of the outputs, and of the task's score where there is one.

    Args:
        what: the file, for the message.
        limit: in place of `FP32_LIMIT`; that of the score stays.

    Raises:
        CheckpointError: it does not.
    """
    most = FP32_LIMIT if limit is None else limit
    for one in found.differences:
        # Not a number is never at most anything.
        if not one.largest <= most:
            raise CheckpointError(
                expected=f"{one.output} of {what} within {most:g} of their spread ({one.spread:.4g}) of the library's",
                found=f"a difference of {one.largest:.3g}",
                fix="nothing was written; try other versions of the packages, or allow more with --limit",
            )
    if found.loss is None:
        return {"largest": most}
    is_tie = found.changed is not None and found.changed <= TIES
    if not found.loss <= METRIC_LIMIT and not is_tie:
        raise CheckpointError(
            expected=f"a {found.metric} of {what} at most {METRIC_LIMIT:g} below that of the library"
            + ("" if found.changed is None else f", or at most {TIES} answer changed"),
            found=found.scores,
            fix="nothing was written; try other versions of the packages, or compare on more examples",
        )
    ties = {} if found.changed is None else {"ties": TIES}
    return {"largest": most, "metric_loss": METRIC_LIMIT, **ties}


def require_near(found: Comparison, what: str, limit: float | None = None) -> dict[str, float]:
    """The limit that a quantised export keeps: of the task's score where there is one, else of the outputs.

    Args:
        what: the file, for the message.
        limit: in place of `INT8_METRIC_LIMIT` or `INT8_LIMIT`.

    Raises:
        CheckpointError: it does not.
    """
    fix = "nothing was written; leave out --int8, or allow more with --limit"
    if found.loss is not None:
        most = INT8_METRIC_LIMIT if limit is None else limit
        if not found.loss <= most:
            raise CheckpointError(
                expected=f"a {found.metric} of {what} at most {most:g} below that of the library",
                found=found.scores,
                fix=fix,
            )
        return {"metric_loss": most}
    most = INT8_LIMIT if limit is None else limit
    for one in found.differences:
        if not one.mean <= most:
            raise CheckpointError(
                expected=f"{one.output} of {what} within {most:g} of their spread ({one.spread:.4g}) of the library's "
                "on average",
                found=f"a mean difference of {one.mean:.3g}",
                fix=fix,
            )
    return {"mean": most}
