"""How right predictions are (classes, numbers, answers, entities), and how far scores can be trusted."""
