"""Passages, rankings and retrieval; the senses of a word."""
