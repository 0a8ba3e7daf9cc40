"""Serve models over HTTP: JSON routes for everything that a `Model` can do."""
