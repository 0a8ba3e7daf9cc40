"""Export to other formats, verified against the library."""
