"""Runs rows through an encoder: units, micro-batches, forward passes, frozen encoders."""
