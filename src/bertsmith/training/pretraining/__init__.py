"""Pre-training: from documents to rows, masks, losses and a finished run."""
