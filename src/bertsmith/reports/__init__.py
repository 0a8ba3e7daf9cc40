"""HTML pages and pictures: page elements, charts, and sections that several reports share."""
