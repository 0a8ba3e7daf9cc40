"""Pages and pictures: HTML, charts, sections that several reports share."""
