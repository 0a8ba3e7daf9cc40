"""The settings of word vectors, with the defaults of the original programs for each method.

Source: word2vec.c of the original Word2Vec (2013); vocab_count.c, cooccur.c and glove.c of the original GloVe (2014);
for PPMI, Levy, Goldberg and Dagan (2015), with the window of `text/corpus/cooccurrence.py`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from bertsmith.base.core.errors import ConfigError, nearest
from bertsmith.base.core.requests import AS_IT_IS, Request
from bertsmith.base.core.settings import (
    Help,
    help_field,
    require,
    require_known,
    require_limits,
    require_number,
    require_other,
)
from bertsmith.text.documents.encodings import EncodingSettings

SKIP_GRAM, CBOW, GLOVE, PPMI = "skip-gram", "cbow", "glove", "ppmi"
METHODS = (SKIP_GRAM, CBOW, GLOVE, PPMI)
AUTO, COMPILED, NUMPY = ENGINES = ("auto", "compiled", "numpy")

# What a method uses where nothing is given; None in the settings.
_WORD2VEC = {"width": 100, "window": 5, "epochs": 5, "negatives": 5, "subsample": 1e-3}
DEFAULTS: dict[str, dict[str, Any]] = {
    SKIP_GRAM: {**_WORD2VEC, "learning_rate": 0.025},
    CBOW: {**_WORD2VEC, "learning_rate": 0.05},
    GLOVE: {"width": 50, "window": 15, "epochs": 25, "learning_rate": 0.05, "maximum_count": 100.0, "power": 0.75},
    PPMI: {"width": 100, "window": 5},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordVectorSettings:
    """How word vectors are trained; what is None has the default of its method, see `resolved`.

    Raises:
        ConfigError: the method is unknown, a number is out of range, or a setting does not belong to the method.
    """

    method: str = help_field(SKIP_GRAM, "skip-gram, cbow, glove or ppmi")
    width: int | None = help_field(None, "dimensions of a vector; default: 100, with glove 50", most=10_000)
    window: int | None = help_field(None, "words to each side that count as context; default: 5, glove 15", most=1000)
    minimum_count: int = help_field(5, "occurrences below which a word is left out", most=10**9)
    most_words: int = help_field(0, "keep at most this many words, the most frequent ones; 0: no limit", most=10**8)
    epochs: int | None = help_field(
        None, "passes over the text; default: 5, with glove 25 over the counts", most=10_000
    )
    learning_rate: float | None = help_field(
        None, "initial learning rate; default: skip-gram 0.025, cbow and glove 0.05", most=10.0
    )
    negatives: int | None = help_field(
        None, "skip-gram, cbow: negative samples per context; default: 5, with --hierarchical 0", most=1000
    )
    hierarchical: bool = help_field(False, "skip-gram, cbow: hierarchical softmax over a Huffman tree")
    subsample: float | None = help_field(
        None,
        "skip-gram, cbow: fraction of the text above which a word is subsampled, 0: never; default: 0.001",
        most=1,
    )
    block: int | None = help_field(
        None,
        "skip-gram, cbow with the engine numpy: words whose gradients are computed together; 1: the "
        "order of the original; default: as many as training stays stable with, at most 256",
        most=100_000,
    )
    maximum_count: float | None = help_field(
        None, "glove: co-occurrences from which a pair has full weight; default: 100", most=1e12
    )
    power: float | None = help_field(None, "glove: exponent of the weight below that; default: 0.75", most=10.0)
    cased: bool = help_field(False, "keep upper case and accents")
    engine: str = help_field(
        AUTO, "skip-gram, cbow, glove: compiled (needs Numba), numpy, or auto: compiled if Numba is installed"
    )
    threads: int = help_field(
        1,
        "skip-gram, cbow, glove with the engine compiled: threads; with more than 1 the result is not reproducible",
        most=1024,
    )
    memory: float = help_field(
        1000.0, "glove, ppmi: megabytes for counting neighbors; counts beyond that are kept on disk", most=1e7
    )
    seed: int = help_field(1, "seed of all randomness")

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            known = "skip-gram or cbow (both are Word2Vec), glove or ppmi"
            raise ConfigError.must_be("method", known, self.method, nearest(self.method, METHODS))
        require_limits(self)
        for name, least in (
            ("width", 1),
            ("window", 1),
            ("minimum_count", 1),
            ("epochs", 1),
            ("block", 1),
            ("threads", 1),
        ):
            self._require_least(name, least)
        for name in ("most_words", "negatives", "subsample", "power", "seed"):
            self._require_least(name, 0)
        for name in ("learning_rate", "maximum_count", "memory"):
            value = getattr(self, name)
            require_number(name, value, above=0)
        used = {*DEFAULTS[self.method], *(("block", "hierarchical") if self.is_word2vec else ())}
        for name in ("epochs", "learning_rate", "negatives", "subsample", "block", "maximum_count", "power"):
            require(
                getattr(self, name) is None or name in used,
                expected=f"settings of the method {self.method}",
                found=f"{name.replace('_', ' ')}, which it does not use",
                fix="leave it out, or choose another method",
            )
        require_known("engine", self.engine, ENGINES)
        require(
            self.method != PPMI or (self.engine == AUTO and self.threads == 1),
            expected="no engine and one thread with the method ppmi, which trains nothing",
            found=f"engine {self.engine}, threads {self.threads}",
            fix="leave them out",
        )
        require(
            self.engine != COMPILED or self.block is None or self.block == 1,
            expected="the engine numpy for a block of several words",
            found=f"engine compiled, block {self.block}",
            fix="leave one of them out",
        )
        require_other(
            self.threads == 1 or (self.engine != NUMPY and (self.block or 1) == 1),
            "--threads",
            "--engine compiled",
            "leave --threads out, or leave --engine and --block out",
        )
        require(
            not self.hierarchical or self.is_word2vec,
            expected=f"settings of the method {self.method}",
            found="hierarchical softmax",
            fix="leave it out, or choose skip-gram or cbow",
        )
        require(
            not self.is_word2vec or self.hierarchical or self.negatives != 0,
            expected="something to learn from: negatives of at least 1, or hierarchical softmax",
            found="negatives 0",
            fix="raise negatives, or add --hierarchical",
        )

    @property
    def is_word2vec(self) -> bool:
        """True for skip-gram and CBOW."""
        return self.method in (SKIP_GRAM, CBOW)

    def resolved(self) -> "WordVectorSettings":
        """The same settings with the defaults of the method filled in.

        >>> WordVectorSettings(method="glove").resolved().window
        15
        """
        values = dict(DEFAULTS[self.method])
        if self.hierarchical:
            values["negatives"] = 0
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    def _require_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        require_number(name, value, least=least)


@dataclasses.dataclass(frozen=True)
class TrainVectorsRequest(Request, WordVectorSettings, EncodingSettings):
    """Text files, the folder of the vectors, and how they are trained."""

    texts: Annotated[
        Sequence[str | Path],
        Help(
            ".txt, .jsonl or .parquet files (also .gz, .zst), folders, or - for stdin",
            flag="TEXT...",
            path="a text",
            address=AS_IT_IS,
            kind=list[Path],
        ),
    ]
    out: Annotated[str | Path, Help("folder to write", metavar="V", path="the folder", kind=Path)]
    _: dataclasses.KW_ONLY
    form: str = help_field("auto", "layout of .txt files, as in `corpus`")
    column: str = help_field("", "text column of .jsonl and .parquet files; default: detected")
    resume: bool = help_field(False, "resume V; give the same options again")
    replace: bool = help_field(False, "overwrite V, or an unfinished V")
