"""The files next to the weights in a model folder: metadata and tokenizer."""
