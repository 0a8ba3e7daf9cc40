"""Texts into other texts: the encoder-decoder Transformer on pairs, from the file to the beam search."""
