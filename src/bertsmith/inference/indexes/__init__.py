"""Indexes of texts on disk: built in parts, extended, searched by vectors."""
