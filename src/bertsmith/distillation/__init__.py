"""Smaller models that learn from larger ones: students, teachers, their losses, and what the result is worth."""
