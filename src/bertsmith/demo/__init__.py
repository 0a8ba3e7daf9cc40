"""The whole chain in a few minutes: from text to a model that predicts masked words, and a classifier on top of it."""
