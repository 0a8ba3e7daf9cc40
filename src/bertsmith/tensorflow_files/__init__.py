"""Checkpoint files of TensorFlow, read and written without TensorFlow."""
