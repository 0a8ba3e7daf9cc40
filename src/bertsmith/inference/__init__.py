"""A trained model to answers: predictions, vectors, search, exports."""
