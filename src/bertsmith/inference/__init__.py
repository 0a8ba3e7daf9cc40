"""Predictions of trained models."""
