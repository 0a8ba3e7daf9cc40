"""What a model is trained for: each task reads, encodes, has a head, a loss and scores."""
