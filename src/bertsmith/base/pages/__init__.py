"""HTML pages: their elements and charts."""
