"""The model: its configuration, the flat batch, attention, the encoder in one file, its heads."""
