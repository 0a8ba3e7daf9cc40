"""The masked-LM loss of whole words, which can be compared between models with different vocabularies.

The loss of a piece depends on how long pieces are: a model with longer ones has fewer and harder predictions. So words
are masked here, the same ones for every vocabulary, with all their pieces, and the negative log-probabilities of these
add up to that of the word. A word of several pieces is read from left to right: each piece is predicted from the text
around the word and from the pieces before it, while those after it are masked.

A row thus becomes as many rows as its longest masked word has pieces. What remains is that the number of masks says how
many pieces a word has.

Source: Kauf and Ivanova (2023), "A Better Way to Do Masked Language Model Scoring", for reading a word from left to
right.

N rows, M masked words of a passage.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from bertsmith.base.core.progress import Progress
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import cut_by_tokens, gather_rows
from bertsmith.tasks.metrics.uncertainty import PairedTest, paired_test
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.normalize import basic_tokens
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer

MASKED_SHARE = 0.15  # of the words of a passage, as in BERT

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Passage:
    """Consecutive words of a document, and the places of those to predict, ascending."""

    words: tuple[str, ...]
    masked: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordLoss:
    """The losses of the masked words of some passages."""

    nats: tuple[float, ...]  # the negative log-probability of the masked words of each passage
    words: tuple[int, ...]  # the number of masked words of each passage
    characters: int  # the number of their characters

    @property
    def per_word(self) -> float:
        """Nats per masked word."""
        return sum(self.nats) / sum(self.words)

    @property
    def per_character(self) -> float:
        """Nats per character of the masked words."""
        return sum(self.nats) / self.characters

    def change_from(self, before: "WordLoss") -> PairedTest | None:
        """The change of the loss per word from that of another model on the same passages; None for one passage."""
        if len(self.nats) < 2:
            return None
        after, first = (
            [nats / count for nats, count in zip(loss.nats, loss.words, strict=True)] for loss in (self, before)
        )
        return paired_test(after, first)


def passages_of(
    documents: Iterable[Sequence[str]], tokenizers: Sequence[Tokenizer], *, room: int, seed: int
) -> list[Passage]:
    """Documents as passages that fit into a row of every tokenizer, with the words to predict drawn.

    Only words with a letter or a digit that every tokenizer can spell are predicted; passages without one are left out.

    Args:
        room: the tokens of text in a row.
    """
    result = list[Passage]()
    for document in documents:
        words = [word for sentence in document for word in basic_tokens(sentence, tokenizers[0].rules)]
        if not words:
            continue
        encoded = [tokenizer.encode_repeated_words(words) for tokenizer in tokenizers]
        lengths = np.max([tokens.lengths for tokens in encoded], axis=0)
        is_known = np.all(
            [_is_known(tokens, tokenizer) for tokens, tokenizer in zip(encoded, tokenizers, strict=True)], 0
        )
        for start, end in _cuts(lengths, room):
            places = [n - start for n in range(start, end) if is_known[n] and any(map(str.isalnum, words[n]))]
            if not places:
                continue
            count = max(1, round(MASKED_SHARE * len(places)))
            drawn = generator(seed, "masked words", len(result)).choice(places, count, replace=False)
            result.append(Passage(tuple(words[start:end]), tuple(sorted(drawn.tolist()))))
    return result


@torch.no_grad()  # in inference mode a model that is divided among processes could not be gathered
def word_loss(
    model: EncoderForPreTraining, tokenizer: Tokenizer, passages: Sequence[Passage], runtime: Runtime
) -> WordLoss:
    """The losses of the masked words of passages, in fp32 and without dropout."""
    model = model.to(runtime.torch_device).eval()
    numbers, rows, places, gold = _rows(passages, tokenizer)
    packed = pack_rows(
        rows, template=tokenizer.template, max_length=2**16, model_limit=2**16
    )  # what does not fit was cut into passages
    lengths = packed.lengths.astype(np.int64)
    starts = packed.offsets[:-1] + len(tokenizer.template.start)
    counts = np.array([len(positions) for positions in places], dtype=np.int64)
    wanted = np.concatenate([start + positions for start, positions in zip(starts.tolist(), places, strict=True)])
    targets = np.concatenate(gold)
    nats = np.zeros(len(passages))
    with Progress("scoring masked words", len(rows), "rows", least=1.0) as progress:
        for part in cut_by_tokens(np.argsort(lengths, kind="stable"), lengths, runtime.inference_tokens):
            gathered = gather_rows(
                part,
                token_ids=packed.token_ids,
                segment_ids=packed.segment_ids,
                lengths=lengths,
                wanted=wanted,
                wanted_per_row=counts,
                device=runtime.device,
            )
            logits = model(gathered.batch, read=gathered.read, masked=torch.arange(len(gathered.chosen))).mlm_logits
            right = torch.from_numpy(targets[gathered.chosen]).to(logits.device)
            losses = F.cross_entropy(logits.float(), right, reduction="none").double().cpu().numpy()
            np.add.at(nats, np.repeat(numbers[part], counts[part]), losses)
            progress.advance(len(part))
    return WordLoss(
        nats=tuple(nats.tolist()),
        words=tuple(len(passage.masked) for passage in passages),
        characters=sum(len(passage.words[index]) for passage in passages for index in passage.masked),
    )


def _rows(
    passages: Sequence[Passage], tokenizer: Tokenizer
) -> tuple[Ints, list[npt.NDArray[np.int32]], list[Ints], list[Ints]]:
    """(the passage of each row, int64 [N]; its tokens; the places to predict; what belongs there)."""
    numbers, rows, places, gold = [], [], [], []
    for number, passage in enumerate(passages):
        for row, positions, hidden in _rows_of(passage, tokenizer):
            numbers.append(number)
            rows.append(row)
            places.append(positions)
            gold.append(hidden)
    return np.array(numbers, dtype=np.int64), rows, places, gold


def _rows_of(passage: Passage, tokenizer: Tokenizer) -> Iterator[tuple[npt.NDArray[np.int32], Ints, Ints]]:
    """The rows of a passage: first with all pieces of its masked words masked, then with one more shown in each."""
    encoded = tokenizer.encode_repeated_words(passage.words)
    masked = np.array(passage.masked, dtype=np.int64)
    begins, lengths = encoded.offsets[masked], encoded.lengths[masked]
    hidden = encoded.ids.copy()
    for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
        hidden[begin : begin + length] = tokenizer.vocabulary.mask_id
    for number in range(int(lengths.max())):
        where = begins[lengths > number] + number
        yield hidden.copy(), where, encoded.ids[where].astype(np.int64)
        hidden[where] = encoded.ids[where]


def _cuts(lengths: Ints, room: int) -> Iterator[tuple[int, int]]:
    """The stretches of words that together have at most `room` tokens; a word that is longer is left out.

    >>> list(_cuts(np.array([2, 2, 9, 1, 1]), 4))
    [(0, 2), (3, 5)]
    """
    start = size = 0
    for number, length in enumerate(lengths.tolist()):
        if size + length > room:
            if start < number:
                yield start, number
            start, size = number, 0
        if length > room:
            start = number + 1
        else:
            size += length
    if start < len(lengths):
        yield start, len(lengths)


def _is_known(encoded: Encoded, tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Whether the pieces of each word spell it, bool."""
    return np.asarray((encoded.lengths > 1) | (encoded.ids[encoded.offsets[:-1]] != tokenizer.vocabulary.unk_id))
