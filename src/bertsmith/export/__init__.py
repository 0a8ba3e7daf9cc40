"""A model in other formats, checked against the library."""
