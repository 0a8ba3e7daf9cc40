"""Passage retrieval and rankings; word senses."""
