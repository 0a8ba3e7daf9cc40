"""The losses of vectors of texts, by name; see `tasks.specs.similarity` for what each of them needs."""

OBJECTIVES = ("cosine", "cosent", "ranking", "softmax", "infersent", "triplet", "margin")
COSINE, COSENT, RANKING, SOFTMAX, INFERSENT, TRIPLET, MARGIN = OBJECTIVES
WITH_LAYER = (SOFTMAX, INFERSENT)  # whose labels a layer predicts that is left out of the model
NO_TEXT = -1  # the id of a text that a unit does not have
