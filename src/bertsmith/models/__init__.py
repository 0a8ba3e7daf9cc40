"""Models: the parts of encoders, the encoders, their heads, how they multiply, and their files."""
