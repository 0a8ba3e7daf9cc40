"""Several systems on one task, from word counts to BERT: their scores and costs, and which one is worth its cost."""
