"""The encoders, one module each: its configuration, the names of its parameters on disk, and its network."""
