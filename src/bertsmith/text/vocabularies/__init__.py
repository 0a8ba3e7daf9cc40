"""Learning a vocabulary: word counts, candidate pieces, the choice among them, its quality."""
