"""The parts of encoders: configuration, flat batch, attention, layers, dropout, cached states."""
