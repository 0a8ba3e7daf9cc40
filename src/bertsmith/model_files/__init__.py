"""What a model folder has next to its weights: metadata, and the files of its tokenizer."""
