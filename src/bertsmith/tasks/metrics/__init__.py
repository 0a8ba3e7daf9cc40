"""Scores of predictions (classes, numbers, answers, entities, rankings), and their uncertainty."""
