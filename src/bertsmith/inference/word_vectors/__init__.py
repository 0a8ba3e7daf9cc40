"""Word vectors without context: Word2Vec, GloVe, and PPMI with an SVD; their files, and queries on them."""
