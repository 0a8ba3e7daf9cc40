"""The text for the systems of a comparison, as files and as token shards; each is made when it is first needed.

::

    MODELS/text/vocab.txt    the vocabulary that was learned from the text
    MODELS/text/corpus/      its token shards
    MODELS/text/text.txt     if a corpus folder was given instead of text: its sentences, as its pieces spell them
"""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import Progress
from bertsmith.base.storage.files import atomic_file, digest_bytes, digest_file
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.manifest import MANIFEST
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.readers import read_documents
from bertsmith.text.documents.sources import STDIN, Source, find_sources
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary

TEXT_FOLDER = "text"  # in the folder of models
VOCABULARY_SIZE = 8_000  # pieces, as in the demo


class CorpusText:
    """The text that systems read, as files of text and as token shards; each is made when it is first needed."""

    def __init__(self, paths: Sequence[Path], folder: Path) -> None:
        self.paths, self.folder = list(paths), folder
        if not all(str(path) != STDIN for path in paths):
            raise ConfigError(
                expected="files of text, which are read several times", found="-, stdin", fix="write the text to a file"
            )
        self._corpus = paths[0] if len(paths) == 1 and (paths[0] / MANIFEST).is_file() else None
        if self._corpus is not None:
            self.digest = digest_file(self._corpus / MANIFEST)
            return
        if next(read_documents(self.paths), None) is None:
            raise self._no_text()
        files = [Path(file.name) for file in find_sources(self.paths) if isinstance(file, Source)]
        self.digest = digest_bytes("\n".join(map(digest_file, files)).encode())

    @functools.cached_property
    def corpus(self) -> Path:
        """The folder of token shards."""
        if self._corpus is not None:
            return self._corpus
        folder = self.folder / "corpus"
        if not folder.is_dir():
            rules = TextRules()
            counts = count_files(self.paths, rules).total
            tokenizer = WordPieceTokenizer(learn_vocabulary(counts, VOCABULARY_SIZE), rules)
            tokenizer.vocabulary.save(self.folder / "vocab.txt")
            build_corpus(self.paths, tokenizer, folder)
        return folder

    @functools.cached_property
    def texts(self) -> list[Path]:
        """The files of text; for a corpus folder, one with its sentences, an empty line after each document."""
        if self._corpus is None:
            return self.paths
        path = self.folder / "text.txt"
        if not path.is_file():
            corpus = Corpus.open(self._corpus)
            parts = [part for part in (corpus, corpus.held_out()) if part is not None]
            total = sum(part.num_documents for part in parts)
            with atomic_file(path) as file, Progress("reading the corpus", total, "documents") as progress:
                for part in parts:
                    for number in range(part.num_documents):
                        file.write(_document(part, number).encode("utf-8"))
                        progress.advance()
        return [path]

    def _no_text(self) -> InputError:
        return InputError.at(
            ", ".join(repr(str(path)) for path in self.paths), "text", "no words", "name files that contain text"
        )


def _document(corpus: Corpus, number: int) -> str:
    ids, edges = corpus.document_tokens(number), corpus.document_sentences(number).tolist()
    decode = corpus.tokenizer.decode
    lines = [decode(ids[start:end].tolist()) for start, end in itertools.pairwise(edges)]
    return "".join(f"{line}\n" for line in lines) + "\n"
