"""Scores of predictions (classes, numbers, answers, entities, rankings), and how far they can be trusted."""
