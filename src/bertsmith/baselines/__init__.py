"""Cheap systems that a fine-tuned model has to beat."""
