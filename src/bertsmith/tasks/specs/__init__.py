"""The tasks a model is fine-tuned for; each has its own encoding, head, loss and metrics."""
