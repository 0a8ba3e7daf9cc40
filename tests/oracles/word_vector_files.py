"""Files of word vectors, read by the rules of gensim's `KeyedVectors.load_word2vec_format` and of GloVe's own readers.

Source: gensim 4, `keyedvectors.py`: `_load_word2vec_format`, `_word2vec_read_text`, `_word2vec_line_to_vector`,
`_word2vec_detect_sizes_text`, `_add_bytes_to_kv`. Each function raises ValueError or EOFError where gensim does.
"""

import numpy as np

Read = dict[str, np.ndarray]


def _line(line: bytes) -> tuple[str, np.ndarray]:
    word, *numbers = line.rstrip().decode("utf-8").split(" ")
    return word, np.array([np.float32(number) for number in numbers], dtype=np.float32)


def _add(vectors: Read, word: str, vector: np.ndarray, width: int) -> None:
    if len(vector) != width:
        raise ValueError("invalid vector")
    vectors.setdefault(word, vector)


def text(data: bytes) -> Read:
    """A file of Word2Vec's text format; lines after the last word are not read."""
    lines = data.split(b"\n")
    count, width = map(int, lines[0].decode("utf-8").split())
    vectors: Read = {}
    for line in lines[1 : count + 1]:
        if not line:
            raise EOFError
        _add(vectors, *_line(line), width)
    if len(lines) <= count:
        raise EOFError
    return vectors


def text_without_header(data: bytes) -> Read:
    """A file of GloVe."""
    lines = data.removesuffix(b"\n").split(b"\n")
    width = len(_line(lines[0])[1])
    vectors: Read = {}
    for line in lines:
        _add(vectors, *_line(line), width)
    return vectors


def binary(data: bytes) -> Read:
    """A file of Word2Vec's binary format, with or without a line feed after each vector."""
    header, _, rest = data.partition(b"\n")
    count, width = map(int, header.decode("utf-8").split())
    vectors: Read = {}
    start = 0
    for _ in range(count):
        space = rest.find(b" ", start)
        if space < 0 or len(rest) - space - 1 < 4 * width:
            raise EOFError
        word = rest[start:space].decode("utf-8").lstrip("\n")
        _add(vectors, word, np.frombuffer(rest, "<f4", width, space + 1), width)
        start = space + 1 + 4 * width
    return vectors
