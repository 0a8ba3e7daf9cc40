"""Files, locks, outputs, and what is at addresses such as s3://."""
