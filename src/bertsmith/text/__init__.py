"""Text to token ids, and back.

`normalize` cleans and cuts text into words, `wordpiece` looks them up, `learn` makes a vocabulary, `pack` builds the
rows that a model reads. Nothing here imports torch.
"""
