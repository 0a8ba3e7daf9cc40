"""Sequences of codes: events of subjects as visits, a vocabulary of their codes, and a tree over it."""
