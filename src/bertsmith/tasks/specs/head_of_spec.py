"""The head of a task, from its spec: a linear layer on a vector of each row, or on the states of its tokens."""

from typing import TYPE_CHECKING, Any

from bertsmith.models.parts.our_names import BILSTM
from bertsmith.tasks.specs.settings import HIERARCHICAL

if TYPE_CHECKING:
    from bertsmith.models.heads.task_head import Head
    from bertsmith.tasks.specs.task import TaskSpec


def head_on_rows(spec: "TaskSpec", outputs: int) -> "Head":
    """The head of a task on whole rows: a linear layer with `outputs` numbers on the vector of a row."""
    from bertsmith.models.heads.task_head import Head

    return Head(
        part="classifier",
        outputs=outputs,
        pooled=True,
        reads=spec.reads,
        is_pair=spec.has_two_texts,
        windows=HIERARCHICAL.get(spec.settings.long_text, ""),
        **_bilstm(spec),
    )


def head_on_tokens(spec: "TaskSpec", part: str, outputs: int) -> "Head":
    """The head of a task on tokens: a linear layer on their hidden states, or on the states of a BiLSTM over them.

    Args:
        part: "classifier" or "span".
        outputs: the numbers of each token.
    """
    from bertsmith.models.heads.task_head import Head

    if spec.reads != BILSTM:
        return Head(part=part, outputs=outputs, pooled=False)
    return Head(part=part, outputs=outputs, pooled=False, reads=BILSTM, **_bilstm(spec))


def _bilstm(spec: "TaskSpec") -> dict[str, Any]:
    return {"cells": spec.bilstm_cells, "layers": spec.bilstm_layers, "normalized": spec.normalize_layers}
