"""Work on text spread over many machines by Ray Data: the same functions, called elsewhere, with the same results."""
