"""What a trained model answers."""
