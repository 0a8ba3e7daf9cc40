"""The whole pipeline in a few minutes: from text to a masked language model, and a classifier on top of it."""
