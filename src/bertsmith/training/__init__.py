"""A corpus to a trained encoder: the training loop, pre-training, and what a run will take."""
