"""Reads and writes models: Hugging Face folders, Google's TensorFlow checkpoints, the hub."""
