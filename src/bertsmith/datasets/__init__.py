"""Labelled files as examples."""
