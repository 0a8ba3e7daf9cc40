"""Text files to token shards."""
