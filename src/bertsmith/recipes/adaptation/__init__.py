"""Adapting a model to a domain: continued pre-training, domain words in the vocabulary, and what both are worth."""
