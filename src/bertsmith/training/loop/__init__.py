"""The training of any model: optimizers, schedules, the training loop, run folders. It knows neither BERT nor text."""
