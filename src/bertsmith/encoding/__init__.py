"""Rows through an encoder: units, micro-batches, forward passes, frozen use."""
