"""Loaded models over HTTP: what a `Model` of the library can do, as routes that answer JSON."""
