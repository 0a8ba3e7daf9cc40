"""The names of parameters in Google's checkpoints of BERT.

Source: the variable scopes of the original modeling.py, run_classifier.py and run_squad.py.
"""

import re

from bertsmith.models.encoders.bert import NAMES
from bertsmith.models.parts.parameter_names import Match, Skip

_BY_GOOGLE = {row.google: Match(row.ours, row.transposed) for row in NAMES.rows()}
_NUMBER = re.compile(r"(?<=^bert/encoder/layer_)(0|[1-9][0-9]{0,2})(?=/)")
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_COUNTERS = ("global_step", "beta1_power", "beta2_power")


def from_google(name: str) -> Match | Skip | None:
    """Our name for a variable of a Google checkpoint; None for an unknown one. The prefix `bert/` may be absent.

    >>> from_google("bert/encoder/layer_3/output/dense/kernel")
    Match(ours='bert.layers.3.output.weight', transposed=True, copy=False)
    >>> from_google("cls/squad/output_weights/adam_m")
    Skip(reason='optimizer state')
    >>> from_google("output_bias")
    Match(ours='classifier.bias', transposed=False, copy=False)
    """
    if name in _COUNTERS:
        return Skip("a counter of the optimizer")
    if name.endswith(_SLOTS):
        return Skip("optimizer state")
    full = f"bert/{name}" if name.startswith(("embeddings/", "encoder/", "pooler/")) else name
    number = _NUMBER.search(full)
    template = full if number is None else full[: number.start()] + "{i}" + full[number.end() :]
    match = None if "{i}" in full else _BY_GOOGLE.get(template)
    return None if match is None else match._replace(ours=match.ours.replace("{i}", number[0] if number else ""))


def to_google(ours: str) -> tuple[str, bool]:
    """The Google name of one of our parameters, and whether its matrix is stored transposed.

    >>> to_google("bert.layers.2.intermediate.weight")
    ('bert/encoder/layer_2/intermediate/dense/kernel', True)
    """
    row, number = NAMES.row_of(ours)
    return row.google.replace("{i}", number), row.transposed
