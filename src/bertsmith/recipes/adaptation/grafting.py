"""Grafting: domain words become pieces of a vocabulary, initialized from the pieces that they were split into.

A word is worth adding if it is frequent in the domain and the vocabulary splits it. Its vector is the mean of the
vectors of its pieces, and so is its bias in the head that predicts pieces; everything else of the model stays as it is,
and the new pieces come last, so that no id changes.

V pieces, N added words.

Source: Tai et al. (2020), "exBERT", for a vocabulary that is extended by a domain; Hong et al. (2021), "AVocaDo", for
adding words by how much less they are split; Hewitt (2021), "Initializing New Word Embeddings for Pretrained Language
Models", for means of existing vectors.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.longest_match import WordsSegmenter
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.word_counts import WordCounts

FEWEST_USES = 5  # in the text, below which a word is not added


def words_to_add(counts: WordCounts, tokenizer: Tokenizer, most: int) -> list[str]:
    """The words of a text that save the most pieces if they are pieces of their own, best first.

    Only words with a letter and single unknown characters, of at least `FEWEST_USES` uses, that the vocabulary splits
    or does not know. Their uses are damped where they are concentrated in one part of the text (`WordCounts.spread`).
    """
    vocabulary, longest = tokenizer.vocabulary, tokenizer.rules.max_word_characters
    words = list(counts.words)
    ids, lengths = WordsSegmenter(vocabulary, max_word_characters=longest).segment(words)
    is_unknown = (lengths == 1) & (ids[np.cumsum(lengths) - lengths] == vocabulary.unk_id)
    saved = counts.spread * np.where(is_unknown, 1, lengths - 1)
    candidates = np.flatnonzero((saved > 0) & (counts.counts >= FEWEST_USES))
    named = [
        (-int(saved[index]), words[index])
        for index in candidates.tolist()
        if len(words[index]) <= longest
        and (any(map(str.isalpha, words[index])) or (is_unknown[index] and len(words[index]) == 1))
        and words[index] not in vocabulary.index
    ]
    return [word for _, word in sorted(named)[:most]]


def grafted_tokenizer(tokenizer: Tokenizer, words: Sequence[str]) -> WordPieceTokenizer:
    """The tokenizer with further words as its last pieces."""
    old = tokenizer.vocabulary
    vocabulary = Vocabulary([*old.pieces, *words], special=old.special, source="the grafted vocabulary")
    assert isinstance(tokenizer, WordPieceTokenizer), "only that has words for pieces"
    assert not old.whole, "words can be its last pieces"
    return WordPieceTokenizer(vocabulary, tokenizer.rules, added=tokenizer.added)


def grafted(folder: ModelFolder, words: Sequence[str]) -> ModelFolder:
    """The model with further words as pieces; the parameters are in fp32."""
    before = folder.require_tokenizer()
    tokenizer = grafted_tokenizer(before, words)
    pieces = len(before.vocabulary)
    config = dataclasses.replace(folder.config, vocab_size=pieces + len(words))
    # What has a row for each piece: the word table, and in the head that predicts pieces the bias.
    of_pieces = (
        _heights(config).items() ^ _heights(dataclasses.replace(config, vocab_size=config.vocab_size + 1)).items()
    )
    names = {name for name, _ in of_pieces}
    old_pieces = before.encode_repeated_words(words)
    tensors = {
        name: torch.cat([tensor.float()[:pieces], _means(tensor.float(), old_pieces)]) if name in names else tensor
        for name, tensor in folder.tensors.items()
    }
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    return dataclasses.replace(folder, config=config, tensors=tensors, tokenizer=tokenizer)


def _heights(config: EncoderConfig) -> dict[str, int]:
    """The length of the first axis of each parameter of a model with pre-training heads."""
    with torch.device("meta"):
        model = EncoderForPreTraining(new_encoder(config), seed=None)
    return {name: parameter.shape[0] for name, parameter in model.named_parameters()}


def _means(rows: Tensor, pieces: Encoded) -> Tensor:
    """The mean of the rows of the pieces of each word, [N] or [N, D].

    >>> _means(torch.tensor([[0.0], [2.0], [4.0]]), Encoded.from_rows([[1, 2], [0]])).tolist()
    [[3.0], [0.0]]
    """
    lengths = torch.from_numpy(pieces.lengths)
    picked = rows[torch.from_numpy(pieces.ids.astype(np.int64))]
    return torch.segment_reduce(picked, "mean", lengths=lengths)
