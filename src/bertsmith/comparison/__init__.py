"""Several systems on one task, from counting words to BERT: what each reaches and costs, which step was worth it."""
