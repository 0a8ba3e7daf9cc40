"""Masked-LM pre-training as in the example script run_mlm.py of transformers, on a corpus of ours.

The loop does what `Trainer` of transformers 5.23 does with its default arguments on one processor: fp32, AdamW in its
fused form (betas 0.9 and 0.999, epsilon 1e-8, no weight decay), a linear decay to 0, gradients clipped to norm 1, and
`DataCollatorForLanguageModeling` with 15 % masks. Tokenization is done beforehand and is not timed, on either side.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    get_linear_schedule_with_warmup,
    set_seed,
)
from transformers.utils import logging

from bertsmith.text.corpus.shards import Corpus

TEXTS_PER_BATCH = 1000  # of datasets.map, which group_texts joins
MASKED_SHARE = 0.15
CLIP_NORM = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerRecipe:
    """The settings of the peer.

    Attributes:
        learning_rate: the highest rate.
        warmup_share: warm-up as a fraction of the steps.
        rows_per_step: the batch size.
    """

    learning_rate: float
    warmup_share: float
    rows_per_step: int


# The defaults of TrainingArguments; and what a person who knows about small models sets.
RECIPES = {
    "hf": PeerRecipe(learning_rate=5e-5, warmup_share=0.0, rows_per_step=8),
    "hf-tuned": PeerRecipe(learning_rate=1e-3, warmup_share=0.06, rows_per_step=32),
}


class GroupedTexts(Dataset[dict[str, list[int]]]):
    """The rows of `group_texts`: documents with [CLS] and [SEP], joined and cut into rows of `length` tokens.

    As there, what is left at the end of each 1,000 texts is dropped.
    """

    def __init__(self, corpus: Corpus, length: int) -> None:
        cls, sep = corpus.vocabulary.cls_id, corpus.vocabulary.sep_id
        parts: list[npt.NDArray[np.int32]] = []
        for texts in _batches(corpus):
            joined = np.concatenate([np.concatenate([[cls], tokens, [sep]]) for tokens in texts]).astype(np.int32)
            parts.append(joined[: len(joined) // length * length].reshape(-1, length))
        self.rows = np.concatenate(parts)
        self._special = np.isin(self.rows, [cls, sep]).astype(np.int8)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """The columns that run_mlm.py keeps."""
        length = self.rows.shape[1]
        return {
            "input_ids": self.rows[index].tolist(),
            "token_type_ids": [0] * length,
            "attention_mask": [1] * length,
            "special_tokens_mask": self._special[index].tolist(),
        }


def pretrain_peer(
    rows: GroupedTexts,
    base: Path,
    out: Path,
    recipe: PeerRecipe,
    *,
    steps: int,
    seed: int,
    mark: Callable[[], None],
) -> None:
    """Trains a new model for some steps and writes it to `out`.

    Args:
        base: a model folder that defines the shape and holds the tokenizer.
        mark: called at once, before the first step and after each step; it may raise an exception to end the run.
    """
    mark()
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = BertForMaskedLM(AutoConfig.from_pretrained(base)).train()
    collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=MASKED_SHARE)
    sampler = RandomSampler(rows, generator=torch.Generator().manual_seed(seed))
    loader = DataLoader(rows, batch_size=recipe.rows_per_step, sampler=sampler, collate_fn=collator)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
    )
    warmup = int(np.ceil(recipe.warmup_share * steps))
    schedule = get_linear_schedule_with_warmup(optimizer, warmup, steps)
    mark()
    for inputs in itertools.islice(_epochs(loader), steps):
        model(**inputs).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        schedule.step()
        model.zero_grad()
        mark()
    logging.disable_progress_bar()  # of writing
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _epochs(loader: DataLoader[Any]) -> Iterator[dict[str, torch.Tensor]]:
    while True:
        yield from loader


def _batches(corpus: Corpus) -> Iterator[list[npt.NDArray[Any]]]:
    for start in range(0, corpus.num_documents, TEXTS_PER_BATCH):
        yield [
            corpus.document_tokens(index) for index in range(start, min(start + TEXTS_PER_BATCH, corpus.num_documents))
        ]
