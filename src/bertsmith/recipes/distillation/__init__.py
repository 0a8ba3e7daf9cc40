"""Smaller models that learn from larger ones: students, teachers, losses, and what the teacher contributed."""
