"""Text to token ids, and back.

`normalize` cleans text and splits it into words, `wordpiece` looks them up, `learn` trains a vocabulary, `pack` builds
the rows that a model reads. Nothing here imports torch.
"""
