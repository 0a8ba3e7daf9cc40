"""What encoders are made of: configuration, flat batch, attention, layers, dropout, memory of what was read before."""
