"""Masked-LM pre-training with classes of transformers, on a corpus of ours: run_mlm.py, and the recipe of ModernBERT.

For run_mlm.py the loop does what `Trainer` of transformers 5.23 does with its default arguments on one processor:
fp32, AdamW in its fused form (betas 0.9 and 0.999, epsilon 1e-8, no weight decay), a linear decay to 0, gradients
clipped to norm 1, and `DataCollatorForLanguageModeling` with 15 % masks. Tokenization is done beforehand and is not
timed, on either side.

`modernbert` is `ModernBertForMaskedLM` with the published recipe (Warner et al., 2024, "Smarter, Better, Faster,
Longer", section 2 and table 3) in our code: 30 % masks, predictions at these alone, StableAdamW (betas 0.9 and 0.98,
epsilon 1e-6, decay 1e-5), no clipping, and a rate that rises, stays and falls with one minus the square root. The
inner width is 1.5 times the width, as in the base model. Its warm-up (0.2 % of the tokens) and decay (2.5 %) would be
a few steps here, so they take 2 and 10 % of the steps; a step has 32 rows, without growing from a sixth in the first
3 %.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
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
    ModernBertConfig,
    ModernBertForMaskedLM,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
    set_seed,
)
from transformers.utils import logging

from bertsmith.text.corpus.shards import Corpus

TEXTS_PER_BATCH = 1000  # of datasets.map, which group_texts joins
CLIP_NORM = 1.0
DECAY_SHARE = 0.1  # of the steps, of ModernBERT


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerRecipe:
    """The settings of the peer.

    Attributes:
        learning_rate: the highest rate.
        warmup_share: warm-up as a fraction of the steps.
        rows_per_step: the batch size.
        is_modernbert: whether network, optimizer and schedule are ModernBERT's.
        masked_share: of the pieces.
    """

    learning_rate: float
    warmup_share: float
    rows_per_step: int
    is_modernbert: bool = False
    masked_share: float = 0.15


# The defaults of TrainingArguments; what a person who knows about small models sets; and ModernBERT.
RECIPES = {
    "hf": PeerRecipe(learning_rate=5e-5, warmup_share=0.0, rows_per_step=8),
    "hf-tuned": PeerRecipe(learning_rate=1e-3, warmup_share=0.06, rows_per_step=32),
    "modernbert": PeerRecipe(
        learning_rate=8e-4, warmup_share=0.02, rows_per_step=32, is_modernbert=True, masked_share=0.3
    ),
}


def peer_recipe(arm: str) -> PeerRecipe | None:
    """The recipe of an arm, with the rate after its name if there is one; None for arms of others.

    >>> peer_recipe("modernbert@2e-3").learning_rate, peer_recipe("auto")
    (0.002, None)
    """
    name, _, rate = arm.partition("@")
    recipe = RECIPES.get(name)
    return dataclasses.replace(recipe, learning_rate=float(rate)) if recipe and rate else recipe


class StableAdamW(torch.optim.Optimizer):
    """AdamW whose rate is divided, by tensor, by the root mean square of gradients over their expectation, if above 1.

    Source: Wortsman et al. (2023), "Stable and low-precision training for large-scale vision-language models",
    algorithm 2.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 1e-5})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            eps = group["eps"]
            for parameter in group["params"]:
                grad, state = parameter.grad, self.state[parameter]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(grad), "square": torch.zeros_like(grad)}
                state["step"] += 1
                # Debiased averages from decays that grow with the step, as in Adafactor.
                first, second = (
                    beta * (1 - beta ** (state["step"] - 1)) / (1 - beta ** state["step"]) for beta in group["betas"]
                )
                mean = state["mean"].mul_(first).add_(grad, alpha=1 - first)
                square = state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
                ratio = (grad * grad / square.clamp_min(eps * eps)).mean().sqrt().item()
                rate = group["lr"] / max(1.0, ratio)
                parameter.mul_(1 - rate * group["weight_decay"]).addcdiv_(mean, square.sqrt().add_(eps), value=-rate)


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
    precision: str = "fp32",
) -> None:
    """Trains a new model for some steps and writes it to `out`.

    Args:
        base: a model folder that defines the shape and holds the tokenizer.
        precision: fp32, or bf16 by autocast.
        mark: called at once, before the first step and after each step; it may raise an exception to end the run.
    """
    mark()
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    config = AutoConfig.from_pretrained(base)
    model = (modernbert(config) if recipe.is_modernbert else BertForMaskedLM(config)).train()
    collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=recipe.masked_share)
    sampler = RandomSampler(rows, generator=torch.Generator().manual_seed(seed))
    loader = DataLoader(rows, batch_size=recipe.rows_per_step, sampler=sampler, collate_fn=collator)
    warmup = int(np.ceil(recipe.warmup_share * steps))
    optimizer: torch.optim.Optimizer
    if recipe.is_modernbert:
        optimizer = StableAdamW(model.parameters(), recipe.learning_rate)
        schedule = get_wsd_schedule(
            optimizer, warmup, int(DECAY_SHARE * steps), num_training_steps=steps, decay_type="1-sqrt"
        )
    else:
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
        )
        schedule = get_linear_schedule_with_warmup(optimizer, warmup, steps)
    mark()
    for inputs in itertools.islice(_epochs(loader), steps):
        if recipe.is_modernbert:
            del inputs["token_type_ids"]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = model(**inputs).loss
        loss.backward()
        if not recipe.is_modernbert:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        schedule.step()
        model.zero_grad()
        mark()
    model.config.sparse_prediction = False
    logging.disable_progress_bar()  # of writing
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def modernbert(shape: Any) -> ModernBertForMaskedLM:
    """A new ModernBERT with the vocabulary, layers, width and heads of a configuration of BERT."""
    config = ModernBertConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.hidden_size * 3 // 2,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        max_position_embeddings=shape.max_position_embeddings,
        pad_token_id=shape.pad_token_id,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
        sparse_prediction=True,
    )
    return ModernBertForMaskedLM(config)


def _epochs(loader: DataLoader[Any]) -> Iterator[dict[str, torch.Tensor]]:
    while True:
        yield from loader


def _batches(corpus: Corpus) -> Iterator[list[npt.NDArray[Any]]]:
    for start in range(0, corpus.num_documents, TEXTS_PER_BATCH):
        yield [
            corpus.document_tokens(index) for index in range(start, min(start + TEXTS_PER_BATCH, corpus.num_documents))
        ]
