"""Special pieces that a vocabulary lacks: those that GLiNER adds, and those of rows in one without any, such as GPT's.

A row of such a model is the bare text. Fine-tuning puts a piece at its start, one between two texts and one at its end,
where a classifier reads.

Source: Radford et al. (2018), section 3.3; the names of `train.py` of the original code.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch

from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.model_files.row_json import added_json, template_json
from bertsmith.text.tokenizers.added_tokens import AddedToken
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

START, DELIMITER, CLASSIFY = "_start_", "_delimiter_", "_classify_"


def with_added_pieces(tokenizer: Tokenizer, pieces: Sequence[str]) -> Tokenizer:
    """The tokenizer with special pieces after all others, as by `add_tokens` of `transformers`; those it has stay."""
    first = len(tokenizer.vocabulary)
    new = [piece for piece in dict.fromkeys(pieces) if piece not in tokenizer.vocabulary.index]
    tokens = [AddedToken(content=piece, id=first + number, special=True) for number, piece in enumerate(new)]
    if isinstance(tokenizer, WordPieceTokenizer):
        before = tokenizer.vocabulary
        vocabulary = Vocabulary(
            [*before.pieces, *new], special=before.special, whole=before.whole + len(new), has_ids=before.has_ids
        )
        return WordPieceTokenizer(vocabulary, tokenizer.rules, added=[*tokenizer.added, *tokens])
    assert isinstance(tokenizer, PipelineTokenizer), "a tokenizer that can be described"
    added = [*tokenizer.description.get("added_tokens", ()), *(token.to_json() for token in tokens)]
    description = {**tokenizer.description, "added_tokens": added}
    return PipelineTokenizer(description, tokenizer.vocabulary.special, source=tokenizer.source)


def with_special_pieces(folder: ModelFolder) -> ModelFolder:
    """The model with a piece for the start of a row, one between two texts and one for its end, if it has none.

    Their vectors are drawn at random; with the layer of a task they are all that fine-tuning adds.
    """
    tokenizer, config = folder.tokenizer, folder.config
    if not isinstance(tokenizer, PipelineTokenizer) or tokenizer.template.start or tokenizer.template.end:
        return folder
    pieces, name = (START, DELIMITER, CLASSIFY), "bert.embeddings.word.weight"
    first = config.vocab_size  # rows that only fill up the table stay where they are
    ids = {piece: first + number for number, piece in enumerate(pieces)}
    description = {
        **tokenizer.description,
        "added_tokens": [*tokenizer.description.get("added_tokens", ()), *(added_json(*item) for item in ids.items())],
        "post_processor": template_json([START], [DELIMITER], [CLASSIFY], ids),
    }
    special = tokenizer.vocabulary.special._replace(cls=START, sep=CLASSIFY)
    table = folder.tensors[name]
    drawn = generator(0, "special pieces").standard_normal((len(pieces), table.shape[1]), dtype=np.float32)
    rows = torch.from_numpy(drawn * config.initializer_range).to(table.dtype)
    return dataclasses.replace(
        folder,
        config=dataclasses.replace(config, vocab_size=first + len(pieces)),
        tensors={**folder.tensors, name: torch.cat([table, rows])},
        tokenizer=PipelineTokenizer(description, special, source=tokenizer.source),
    )
