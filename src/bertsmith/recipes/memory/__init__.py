"""Memory networks: from stories with questions to answers about a list of facts."""
