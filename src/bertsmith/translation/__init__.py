"""Translation with the encoder-decoder Transformer: from pairs of texts to beam search."""
