"""Readers that turn labelled files into examples."""
