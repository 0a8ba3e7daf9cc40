"""The names of the files from which the tokenizer of a model folder is read; the hub is asked for these."""

VOCABULARY = "vocab.txt"
PIPELINE = "tokenizer.json"
SWITCHES = "tokenizer_config.json"
SPECIAL_MAP = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
PIECES, MERGES = "vocab.json", "merges.txt"  # of byte pairs
ALBERT_FILE, XLM_ROBERTA_FILE = "spiece.model", "sentencepiece.bpe.model"  # of SentencePiece

TOKENIZER_FILES = (
    VOCABULARY,
    PIPELINE,
    SWITCHES,
    SPECIAL_MAP,
    ADDED_TOKENS,
    PIECES,
    MERGES,
    ALBERT_FILE,
    XLM_ROBERTA_FILE,
)
