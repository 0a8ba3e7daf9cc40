"""Raw text to token shards: tokenizers, vocabularies, documents, the corpus. Nothing here imports torch."""
