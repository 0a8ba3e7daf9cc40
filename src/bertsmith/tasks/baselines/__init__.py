"""Cheap baselines that a fine-tuned model has to beat."""
