"""Audit of labelled tables: labels that are probably wrong, and other rows to look at."""
