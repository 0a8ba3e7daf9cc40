"""Which layers of the teacher a student takes, and from which teacher layer each of its layers learns.

Layers are counted from 1, as in the papers; 0 is the output of the embeddings.
"""

import numpy as np

from bertsmith.base.core.settings import require


def spread_layers(count: int, of: int) -> tuple[int, ...]:
    """`count` of the layers 1 to `of`, evenly spread, the first and the last among them.

    Of 12 layers, these are the six of DistilBERT.

    Source: the file `extract.py` of the released code of DistilBERT.

    >>> spread_layers(6, 12), spread_layers(3, 6), spread_layers(1, 6)
    ((1, 3, 5, 8, 10, 12), (1, 3, 6), (1,))
    """
    return tuple((np.rint(np.linspace(0, of - 1, count)).astype(int) + 1).tolist())


def chosen_layers(text: str | None, of: int, *, spread: bool) -> tuple[int, ...]:
    """The layers that an option names: a number of layers, or layers of the teacher with commas.

    Args:
        text: None for half of them.
        spread: a number of layers are evenly spread, as in DistilBERT; otherwise the lowest ones, whose states are
            those of the teacher, so that a short training has less to repair.

    >>> chosen_layers(None, 12, spread=True), chosen_layers("4", 12, spread=False)
    ((1, 3, 5, 8, 10, 12), (1, 2, 3, 4))
    """
    if text is None:
        text = str(max(1, of // 2))
    parts = [part.strip() for part in str(text).split(",")]
    listed = [int(part) for part in parts if part.isascii() and part.isdigit()]
    is_list = len(listed) == len(parts)
    if is_list and len(listed) == 1:
        require(
            1 <= listed[0] <= of,
            expected=f"a student of 1 to {of} layers, those of the teacher",
            found=f"{listed[0]} layers",
            fix="name another number with --layers",
        )
        return spread_layers(listed[0], of) if spread else tuple(range(1, listed[0] + 1))
    require(
        is_list and all(1 <= layer <= of for layer in listed) and listed == sorted(set(listed)),
        expected=f"layers of the teacher in ascending order, from 1 to {of}, with commas",
        found=repr(text),
        fix="name them like 1,3,6, or how many with one number",
    )
    return tuple(listed)


def layer_map(student: int, teacher: int) -> tuple[tuple[int, int], ...]:
    """For each hidden state of the student, from 0, the one of the teacher that it learns from.

    Source: Jiao et al. (2020), "TinyBERT", section 3.1: the uniform map g(m) = m N / M.

    >>> layer_map(3, 6)
    ((0, 0), (1, 2), (2, 4), (3, 6))
    """
    require(
        student <= teacher and teacher % student == 0,
        expected=f"a student whose number of layers divides the {teacher} of its teacher, to learn from its states",
        found=f"{student} layers",
        fix="choose another --layers, or leave the losses of states and attention out",
    )
    return tuple((layer, layer * teacher // student) for layer in range(student + 1))
