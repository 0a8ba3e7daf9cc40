"""Errors, settings, progress, random numbers, and what is finite."""
