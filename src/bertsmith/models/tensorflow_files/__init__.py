"""TensorFlow checkpoint files, read and written without TensorFlow."""
