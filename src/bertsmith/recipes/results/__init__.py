"""Results of fine-tuning runs: predictions, comparisons, reports, the table of GLUE."""
