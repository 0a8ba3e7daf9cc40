"""Text to token ids, and back.

`tokenizer` is the interface. `normalize` cleans text and splits it into words, `wordpiece` looks them up, `pipeline`
runs the tokenizers of other models, `pack` builds the rows that a model reads. Nothing here imports torch.
"""
