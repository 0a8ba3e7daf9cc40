"""The forms of the vectors of texts: what represents a text, how two of them are compared, and what can train them.

Other code asks a form for what it has, and never for its name.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bertsmith.base.core.settings import require_known
from bertsmith.models.heads.head_spec import COSENT, COSINE, MARGIN, OBJECTIVES, RANKING
from bertsmith.models.parts.head_inputs import MAX

DENSE, SPARSE, TOKENS, INFERENCE_FREE = "dense", "sparse", "tokens", "inference-free"
BY_COSINE, BY_PRODUCT, BY_TOKENS = "cosine", "dot", "meanmaxsim"  # as `similarity_fn_name` of sentence-transformers
BY_EUCLIDEAN, BY_MANHATTAN = "euclidean", "manhattan"  # distances, of which the similarity is the negative
OF_DENSE_VECTORS = (BY_COSINE, BY_PRODUCT, BY_EUCLIDEAN, BY_MANHATTAN)
SCALES = {BY_COSINE: 20.0, BY_PRODUCT: 1.0, BY_TOKENS: 20.0}  # the usual factors on them in front of a softmax
TOKEN_WIDTH = 128  # of vectors of tokens, by default
_BY_ANGLE = (COSINE, COSENT)  # losses of the cosine, whatever the form


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorForm:
    """What represents a text.

    Attributes:
        reads: what can make it of the states of a text's tokens, the default first; see `head_inputs.READS`.
        objectives: the losses that can train it.
        similarity: how ranking and margin compare two texts, one of `SCALES`.
        has_widths: whether the first numbers of a vector can be a vector of their own.
        of_tokens: whether a text has a vector for each token, see `token_similarities.py`.
        of_pieces: whether it is a weight for each piece of the vocabulary, see `piece_weights.py`.
        has_query_table: whether the first texts of examples have learned weights of their pieces, without the encoder.
        flops: default weights of the regularizer of the first texts of an example and of that of the others.
    """

    reads: tuple[str, ...]
    objectives: tuple[str, ...]
    similarity: str
    has_widths: bool = False
    of_pieces: bool = False
    of_tokens: bool = False
    has_query_table: bool = False
    flops: tuple[float, float] = (0.0, 0.0)

    def similarity_for(self, objective: str) -> str:
        """How two texts are compared by a model that is trained with an objective."""
        return BY_COSINE if objective in _BY_ANGLE and not self.of_tokens else self.similarity


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
        flops=(5e-5, 3e-5),  # as in the examples of sentence-transformers
    ),
    INFERENCE_FREE: VectorForm(
        reads=(MAX,),
        objectives=(COSINE, COSENT, RANKING, MARGIN),
        similarity=BY_PRODUCT,
        of_pieces=True,
        has_query_table=True,
        flops=(0.0, 3e-5),  # a query has the pieces of its text alone
    ),
    TOKENS: VectorForm(
        reads=("mean",),
        objectives=(COSINE, COSENT, RANKING, MARGIN),
        similarity=BY_TOKENS,
        of_tokens=True,
    ),
}


def form_of(spec: Mapping[str, Any] | None) -> VectorForm:
    """The form of the vectors of a model whose metadata has this spec; that of one vector per text if it names none.

    Raises:
        ConfigError: there is no such form.
    """
    name = str((spec or {}).get("vectors", DENSE))
    require_known("form of vectors", name, VECTOR_FORMS)
    return VECTOR_FORMS[name]
