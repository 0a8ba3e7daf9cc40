"""Models of others in, ours out: the table of names, Hugging Face folders, Google's TensorFlow checkpoints, the hub."""
