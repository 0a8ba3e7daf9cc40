"""The forms of the vectors of texts: what represents a text, how two of them are compared, and what can train them.

Other code asks a form for what it has, and never for its name.
"""

import dataclasses
from collections.abc import Mapping

from bertsmith.models.heads.head_spec import COSENT, COSINE, MARGIN, OBJECTIVES, RANKING
from bertsmith.models.parts.head_inputs import MAX

DENSE, SPARSE = "dense", "sparse"
BY_COSINE, BY_PRODUCT = "cosine", "dot"  # as `similarity_fn_name` of sentence-transformers
SCALES = {BY_COSINE: 20.0, BY_PRODUCT: 1.0}  # the usual factors on them in front of a softmax
_BY_ANGLE = (COSINE, COSENT)  # losses of the cosine, whatever the form


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorForm:
    """What represents a text.

    Attributes:
        reads: what can make it of the states of a text's tokens, the default first; see `head_inputs.READS`.
        objectives: the losses that can train it.
        similarity: how ranking and margin compare two texts, one of `SCALES`.
        has_widths: whether the first numbers of a vector can be a vector of their own.
        of_pieces: whether it is a weight for each piece of the vocabulary, see `piece_weights.py`.
    """

    reads: tuple[str, ...]
    objectives: tuple[str, ...]
    similarity: str
    has_widths: bool = False
    of_pieces: bool = False

    def similarity_for(self, objective: str) -> str:
        """How two texts are compared by a model that is trained with an objective."""
        return BY_COSINE if objective in _BY_ANGLE else self.similarity


VECTOR_FORMS: Mapping[str, VectorForm] = {
    DENSE: VectorForm(
        reads=("mean", MAX, "cls"),
        objectives=OBJECTIVES,
        similarity=BY_COSINE,
        has_widths=True,
    ),
    SPARSE: VectorForm(
        reads=(MAX,),
        objectives=(COSINE, COSENT, RANKING, MARGIN),
        similarity=BY_PRODUCT,
        of_pieces=True,
    ),
}
