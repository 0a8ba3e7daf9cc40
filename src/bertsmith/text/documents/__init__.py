"""Text files as documents: finding and reading files, documents in them, sentences."""
