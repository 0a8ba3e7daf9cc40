"""Fine-tuning: training on labels, its runs, reports and comparisons."""
