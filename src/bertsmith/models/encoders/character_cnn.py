"""Vectors of pieces from their spelling: ELMo's convolutions over characters.

Letters: V pieces of the vocabulary, U distinct pieces of a batch, T tokens, c characters of a piece, E width of a
character, F filters, O width of the result.

A character is a byte of UTF-8, so no spelling is unknown. A piece has 50 places: a mark for its beginning, its bytes, a
mark for its end, padding. Every piece has one vector wherever it occurs, so a batch computes that of each distinct
piece once, and inference keeps what it has computed.

Source: Peters et al. (2018), "Deep contextualized word representations", section 3.2; `UnicodeCharsVocabulary` and
`_build_word_char_embeddings` of the released code (allenai/bilm-tf); Kim et al. (2016), "Character-Aware Neural
Language Models"; Srivastava et al. (2015), "Highway Networks".
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.parts.layers import Embedding, ScaledLinear, linear
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, Vocabulary

MOST_CHARACTERS = 50
# Characters beyond the 256 bytes, as the released model numbers them.
BEGIN_OF_ROW, END_OF_ROW, BEGIN, END, PADDING = 256, 257, 258, 259, 260
NUM_CHARACTERS = 261
CHARACTER_WIDTH = 16  # E
# Width of each convolution, in characters, and its part of the filters: 32, 32, 64 ... of 2048.
CONVOLUTIONS = ((1, 64), (2, 64), (3, 32), (4, 16), (5, 8), (6, 4), (7, 2))
_WIDEST = 7
MOST_HIGHWAYS = 2  # the smaller released models have one
_CARRY_BIAS = -2.0  # a new highway carries most of its input


def characters_of(vocabulary: Vocabulary) -> npt.NDArray[np.int16]:
    """The characters of every piece, int16 [V, 50].

    A WordPiece is a part of a word, and its spelling says whether the word begins with it but not whether it ends
    with it. So the begin mark is only before a piece that begins a word: `ing` and `##ing`, which both consist of
    the bytes "ing", get different vectors. The end mark follows every piece, because the filters recognize suffixes by
    it; that a word continues shows in the next piece, which has no begin mark. [CLS] and [SEP] are the released
    model's begin and end of a sentence, words of one character of their own; all other special pieces are spelled as
    they are written. As in the released code, a piece keeps its first 48 bytes (49 without the begin mark).

    >>> tiny = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "at", "##é"])
    >>> characters = characters_of(tiny)
    >>> characters[2, :4].tolist(), characters[5, :5].tolist(), characters[6, :4].tolist()
    ([258, 256, 259, 260], [258, 97, 116, 259, 260], [195, 169, 259, 260])
    """
    table = np.full((len(vocabulary), MOST_CHARACTERS), PADDING, dtype=np.int16)
    for number, piece in enumerate(vocabulary.pieces):
        if number == vocabulary.cls_id:
            ids = [BEGIN, BEGIN_OF_ROW]
        elif number == vocabulary.sep_id:
            ids = [BEGIN, END_OF_ROW]
        elif piece.startswith(CONTINUATION) and len(piece) > len(CONTINUATION):
            ids = [*piece.removeprefix(CONTINUATION).encode()]
        else:
            ids = [BEGIN, *piece.encode()]
        ids = [*ids[: MOST_CHARACTERS - 1], END]
        table[number, : len(ids)] = ids
    return table


def filters_of(num_filters: int) -> tuple[tuple[int, int], ...]:
    """The width of each convolution, in characters, and its number of filters.

    >>> filters_of(2048)
    ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    """
    return tuple((width, num_filters // part) for width, part in CONVOLUTIONS)


class Convolution(nn.Module):
    """A convolution over the characters of a piece, ReLU, and the maximum over all places."""

    def __init__(self, width: int, filters: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(filters, CHARACTER_WIDTH, width))
        self.bias = nn.Parameter(torch.zeros(filters))
        self.initial_deviations = {"weight": 1 / math.sqrt(width * CHARACTER_WIDTH)}

    def forward(self, characters: Tensor) -> Tensor:
        """The strongest answer of each filter [U, filters] to the vectors of characters [U, E, c]."""
        answers = F.conv1d(characters, self.weight.to(characters.dtype), self.bias.to(characters.dtype))
        return F.relu(answers.amax(dim=2))  # the same as the maximum of the ReLUs


class Highway(nn.Module):
    """A layer that mixes a ReLU of its input with the input itself: g * relu(W x + b) + (1 - g) * x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = ScaledLinear(width, width)
        self.gate = ScaledLinear(width, width, initial_bias=_CARRY_BIAS)

    def forward(self, x: Tensor) -> Tensor:
        """The mixed vectors [U, F] of `x` [U, F]."""
        return torch.lerp(x, linear(x, self.transform, then="relu"), linear(x, self.gate).sigmoid())


class CharacterCnn(nn.Module):
    """ELMo's token encoder: from the characters of a piece to its vector.

    Args:
        num_filters: F, of all convolutions together; divisible by 64.
        outputs: O.
    """

    def __init__(self, num_filters: int, outputs: int, num_highways: int = MOST_HIGHWAYS) -> None:
        super().__init__()
        self.outputs, self.num_highways = outputs, num_highways
        self.character = _CharacterTable()
        for width, filters in filters_of(num_filters):
            self.add_module(f"convolution{width}", Convolution(width, filters))
        for number in range(num_highways):
            self.add_module(f"highway{number}", Highway(num_filters))
        self.projection = ScaledLinear(num_filters, outputs)
        self.spelling: Tensor | None
        self.register_buffer("spelling", None, persistent=False)
        self._kept: _Kept | None = None

    def read_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Takes over how the pieces are spelled."""
        device = self.character.weight.device
        self.spelling = torch.from_numpy(characters_of(vocabulary)).to(device)
        self._kept = None

    def train(self, mode: bool = True) -> "CharacterCnn":
        """Switches between training and evaluation, and forgets the vectors that were kept."""
        self._kept = None
        return super().train(mode)

    def forward(self, token_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors [T, O] of the pieces `token_ids`, int64 [T].

        Without gradients, the vector of each piece is computed when it first occurs, and kept until a parameter
        changes.
        """
        if torch.is_grad_enabled() and self.projection.weight.requires_grad:
            pieces, places = torch.unique(token_ids, return_inverse=True)
            return F.embedding(places, self._encode(pieces, dtype))
        return F.embedding(token_ids, self._remembered(torch.unique(token_ids), dtype))

    def table(self) -> Tensor:
        """The vectors of all pieces [V, O], without gradients."""
        weight = self.projection.weight
        return self._remembered(torch.arange(len(self._spelled()), device=weight.device), weight.dtype)

    def _remembered(self, pieces: Tensor, dtype: torch.dtype) -> Tensor:
        """A table [V, O] in which the vectors of at least these pieces are filled in."""
        versions = tuple((parameter.data_ptr(), parameter._version) for parameter in self.parameters())
        key = (dtype, pieces.device, versions)
        # The table outlives this call, which may be in inference mode, and may be read where gradients are computed.
        with torch.inference_mode(False), torch.no_grad():
            kept = self._kept
            if kept is None or kept.key != key:
                kept = self._kept = _Kept(key, len(self._spelled()), self.outputs, dtype, pieces.device)
            pieces = pieces.clone()
            absent = pieces[~kept.is_known[pieces]]
            for some in torch.split(absent, _AT_ONCE) if len(absent) else ():
                kept.vectors[some] = self._encode(some, dtype)
                kept.is_known[some] = True  # after the vectors: another thread may be reading
        return kept.vectors

    def _encode(self, pieces: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors [U, O] of `pieces`, int64 [U]."""
        spelled = self._spelled()[pieces].long()  # [U, 50]
        # Beyond the longest piece there is only padding. One window that has nothing but padding is enough.
        longest = int((spelled != PADDING).sum(dim=1).max())
        spelled = spelled[:, : min(longest + _WIDEST, MOST_CHARACTERS)]
        characters = F.embedding(spelled, self.character.weight).to(dtype).transpose(1, 2)  # [U, E, c]
        parts = [self.get_submodule(f"convolution{width}")(characters) for width, _ in CONVOLUTIONS]
        vectors = torch.cat(parts, dim=1)  # [U, F]
        for number in range(self.num_highways):
            vectors = self.get_submodule(f"highway{number}")(vectors)
        return linear(vectors, self.projection)

    def _spelled(self) -> Tensor:
        assert self.spelling is not None, "read_vocabulary was called"
        return self.spelling


_AT_ONCE = 1024  # pieces that are computed together: at most 50 places with F answers of four bytes for each


class _CharacterTable(Embedding):
    """The vectors of the characters; initially as spread out as the uniform distribution of the released code."""

    initial_deviations: ClassVar[Mapping[str, float]] = {"weight": 1 / math.sqrt(3)}

    def __init__(self) -> None:
        super().__init__(NUM_CHARACTERS, CHARACTER_WIDTH)


class _Kept:
    """The vectors [V, O] of the pieces that were computed, and the parameters that they belong to."""

    def __init__(
        self, key: Sequence[object], pieces: int, outputs: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.key = key
        self.vectors = torch.zeros(pieces, outputs, dtype=dtype, device=device)
        self.is_known = torch.zeros(pieces, dtype=torch.bool, device=device)
