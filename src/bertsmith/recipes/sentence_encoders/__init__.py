"""Sentence encoders beyond their training: evaluation, hard negatives, teachers, static vectors, few labels."""
