"""Learning a vocabulary: counts of words, candidate pieces, the choice among them, its quality."""
