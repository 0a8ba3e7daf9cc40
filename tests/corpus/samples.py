"""A vocabulary and texts small enough to read their ids."""

import string
from collections.abc import Iterable
from pathlib import Path

from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from written_files import file_with

WORDS = ("the", "boat", "came", "home", "nobody", "was", "in", "it", "a", "new", "story", "rained")
STORY = "The boat came home.\nNobody was in it.\n\nA new story.\nIt rained.\n"


def small_vocabulary() -> Vocabulary:
    letters = string.ascii_lowercase + string.digits
    pieces = [*SPECIAL_PIECES, *WORDS, *letters.replace("a", ""), *(f"##{letter}" for letter in letters), *".,:!?'\"()"]
    return Vocabulary(pieces)


def small_tokenizer() -> Tokenizer:
    return WordPieceTokenizer(small_vocabulary())


def write_corpus(folder: Path, documents: Iterable[str], tokenizer: Tokenizer, *, held_out: float = 0.1) -> Path:
    """The folder of a corpus of `documents`, which have one sentence on each line; their text is in `folder` too."""
    text = file_with(folder / "text.txt", "\n\n".join(documents) + "\n")
    build_corpus([text], tokenizer, folder / "corpus", held_out=held_out, workers=1)
    return folder / "corpus"


def sentences_of(documents: Iterable) -> list[list[str]]:
    return [document.sentences for document in documents]
