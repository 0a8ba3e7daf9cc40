"""Texts with codes of the same moment, such as the clips of a video with what is said (VideoBERT)."""
