"""The names of what a loss of the vectors of texts compares; see `tasks.similarity` for what each of them needs.

They are here, without torch, for the losses and for the tasks, which also answer without torch.
"""

OBJECTIVES = ("cosine", "cosent", "ranking", "softmax", "infersent", "triplet", "margin")
COSINE, COSENT, RANKING, SOFTMAX, INFERSENT, TRIPLET, MARGIN = OBJECTIVES
WITH_LAYER = (SOFTMAX, INFERSENT)  # whose labels are told apart by a layer that only training has
NO_TEXT = -1  # the id of a text that a unit does not have
