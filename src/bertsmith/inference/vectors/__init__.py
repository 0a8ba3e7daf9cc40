"""Vectors of texts and of words, and files of them."""
