"""Translation with an encoder-decoder, Transformer or LSTM: from pairs of texts to beam search."""
