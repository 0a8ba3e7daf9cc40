"""A BERT that reads codes: its word table gets a row for `[>]`, which separates text from codes, and one for each code.

The piece of a code is `[code:NAME]`, which no text can produce, since brackets are tokens of their own there. A row is
`[CLS] text [>] codes [SEP]`, with the codes in segment 1 if the model has segments. Rows of codes that come from
features are their centers, moved to the mean of all and scaled to the length of word vectors; centers that are wider
than the model are projected to their principal components, narrower ones padded with zeros.

V pieces, C codes, F numbers of a feature vector, D width.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.adaptation.grafting import grafted_tokenizer
from bertsmith.text.codes.feature_words import Floats
from bertsmith.text.codes.vocabulary import BREAK
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

WORD_TABLE, BIAS = "bert.embeddings.word.weight", "mlm.bias"
_START, _END = "[code:", "]"


@dataclasses.dataclass(frozen=True)
class CodePieces:
    """The pieces of a model that are codes.

    Attributes:
        first: the id of the first code; the piece before is `[>]`.
        names: of the codes, in the order of their ids.
        template: of rows `[CLS] text [>] codes [SEP]`.
    """

    first: int
    names: tuple[str, ...]
    template: Template

    @staticmethod
    def of(tokenizer: Tokenizer, source: str) -> "CodePieces":
        """The codes of a model.

        Raises:
            ConfigError: it has none.
        """
        vocabulary = tokenizer.vocabulary
        first = vocabulary.index.get(BREAK, len(vocabulary)) + 1
        names = tuple(
            piece[len(_START) : -len(_END)]
            for piece in vocabulary.pieces[first:]
            if piece.startswith(_START) and piece.endswith(_END)
        )
        require(
            0 < len(names) == len(vocabulary) - first,
            expected=f"a model of texts with codes in '{source}'",
            found="one without codes",
            fix="train one with `bertsmith codes train-video`",
        )
        return CodePieces(first, names, dataclasses.replace(tokenizer.template, between=(first - 1,)))

    def ids(self, codes: Sequence[str]) -> npt.NDArray[np.int32]:
        """The ids of those codes that the model knows, int32."""
        return np.array([self.index[code] for code in codes if code in self.index], dtype=np.int32)

    @functools.cached_property
    def index(self) -> Mapping[str, int]:
        """The id of each code."""
        return {name: id for id, name in enumerate(self.names, start=self.first)}

    def known(self, codes: Sequence[str], location: str) -> npt.NDArray[np.int32]:
        """The ids of codes, int32, all of which the model must know."""
        unknown = next((code for code in codes if code not in self.index), None)
        if unknown is not None:
            raise InputError.at(location, "codes of the model", repr(unknown), nearest(unknown, self.names))
        return self.ids(codes)


def grown(folder: ModelFolder, names: Sequence[str], centroids: Floats | None, seed: int) -> ModelFolder:
    """The model with rows for codes; the parameters are in fp32.

    Args:
        centroids: float32 [C, F], one for each code; without them the new rows are random.

    Raises:
        ConfigError: the model is not a BERT with WordPieces, or has codes already.
    """
    tokenizer, config, fix = folder.require_tokenizer(), folder.config, "start from a BERT with a vocab.txt"
    has_words = isinstance(tokenizer, WordPieceTokenizer) and not tokenizer.vocabulary.whole
    can_judge = config.has_next_sentence and config.can_pool and not config.is_causal and WORD_TABLE in folder.tensors
    require(
        has_words and can_judge,
        expected="a BERT, with WordPieces and a next-sentence head, to start from",
        found=f"{config.display_name} in '{folder.name}'" + ("" if has_words else " without plain WordPieces"),
        fix=fix,
    )
    require(
        BREAK not in tokenizer.vocabulary.index,
        expected=f"a model without codes in '{folder.name}'",
        found=f"one whose vocabulary has {BREAK}",
        fix=fix,
    )
    wider = grafted_tokenizer(tokenizer, [BREAK, *(f"{_START}{name}{_END}" for name in names)])
    tensors = {name: tensor.float() for name, tensor in folder.tensors.items()}
    pieces = len(tokenizer.vocabulary)
    words = tensors[WORD_TABLE][:pieces]
    source = generator(seed, "rows of codes")
    rows = source.normal(0, float(words.std()), (1 + len(names), words.shape[1])).astype(np.float32)
    if centroids is not None:
        rows[1:] = fitted(centroids, words.shape[1], float(words.norm(dim=1).mean()))
    tensors[WORD_TABLE] = torch.cat([words, torch.from_numpy(rows)])
    if BIAS in tensors:
        bias = tensors[BIAS][:pieces]
        tensors[BIAS] = torch.cat([bias, bias.mean().expand(len(rows))])
    config = dataclasses.replace(config, vocab_size=pieces + len(rows))
    return dataclasses.replace(folder, config=config, tensors=tensors, tokenizer=wider)


def fitted(centroids: Floats, width: int, length: float) -> Floats:
    """Centers as rows of a word table, float32 [C, width], whose mean length is `length`; see the module."""
    moved = centroids.astype(np.float64)
    moved -= moved.mean(axis=0)
    if moved.shape[1] > width:
        axes = np.linalg.svd(moved, full_matrices=False)[2][:width]
        signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])  # of an axis, both are as good
        moved = moved @ (axes * signs[:, None]).T
    rows = np.zeros((len(moved), width))
    rows[:, : moved.shape[1]] = moved
    mean = np.linalg.norm(rows, axis=1).mean()
    return (rows * (length / mean if mean else 1.0)).astype(np.float32)
