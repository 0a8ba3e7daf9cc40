"""Vectors of words without context: Word2Vec, GloVe, and PPMI with an SVD; their files, and what they answer."""
