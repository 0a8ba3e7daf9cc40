"""A model that knows a field: continued pre-training, words of the field in the vocabulary, what both are worth."""
