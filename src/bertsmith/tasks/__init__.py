"""Labelled files to examples, rows, losses and scores; the cheap baselines that a model has to beat."""
