"""Models of sequences of codes: from tables of events to predictions about subjects."""
