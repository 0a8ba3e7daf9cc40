"""Heads: what turns hidden states into the outputs of pre-training and of tasks, and the models that have them."""
