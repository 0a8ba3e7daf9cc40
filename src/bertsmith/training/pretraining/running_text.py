"""Checks whether a corpus has contiguous text, for models and rows that rely on it.

Recurrent language models carry their state over the borders of sentences, and contiguous rows of GPT run on over them.
"""

import numpy as np

from bertsmith.base.core.progress import warn
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.settings import PretrainingDataSettings

# The share of documents that may be single sentences: the corpus checks give advice from the same one on.
MOST_SINGLE = 0.5


def warn_without_running_text(corpus: Corpus, data: PretrainingDataSettings) -> str:
    """Warns if a run reads text in order, but most documents are single sentences; returns the warning, or "".

    What is before such a sentence, in the state of the model or in its row, then says nothing about it: the sentences
    are in random order, or blank lines divide them.
    """
    if data.contiguous:
        use = f"rows of up to {data.max_length} tokens hold one sentence each"
    elif OBJECTIVES[data.objective].carries_state:
        use = "the state that is carried from one to the next says nothing about it"
    else:
        return ""
    single = int((corpus.sentence_counts == 1).sum())
    if single <= MOST_SINGLE * corpus.num_documents:
        return ""
    result = (
        f"{single:,} of {corpus.num_documents:,} documents are a single sentence, with a median of "
        f"{np.median(corpus.document_lengths):.0f} tokens, so {use}; for running text, keep the sentences in order and "
        "put blank lines only between documents"
    )
    warn(result)
    return result
