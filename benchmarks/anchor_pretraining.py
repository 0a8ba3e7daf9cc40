"""Pre-training by the recipes of LTG-BERT, GPT-BERT and Cramming, each with the classes of its own repository.

From a checkout come the network (`anchor_models.py`), the optimizer, the schedule, and what masks and packs the rows.
This file only feeds them, as the train script of the repository does, whose default arguments are the numbers below:

* `ltg-bert` (`babylm/train/train.py`): documents cut into rows of 126 pieces between [CLS] and [SEP], each row cut to a
  random length with probability 0.1; spans of 15 % masked; LAMB with weight decay 0.1, cosine to a tenth of the rate
  after 1.6 % warm-up; the last tenth of the steps with rows of 512 tokens and a quarter as many of them. The script
  that cuts documents is not in the repository; rows of consecutive pieces are those of GPT-BERT's data set.
* `gpt-bert` (`pretraining/train_10m.py`): rows without padding; 15 of 16 rows masked, a share that falls from 30 to
  15 %, at pieces that were masked least so far, and one causal; z-loss; the same optimizer with decay of all matrices,
  and a linear cooldown to 0 over the last 1.6 % of the steps; a quarter of the rows per step at the start, growing
  linearly; rows of 256 tokens after 70 % and of 512 after 90 % of the steps. `gpt-bert-half` has as many causal as
  masked rows. Its average of the parameters, which does not influence the training, is left out.
* `cramming` (`train=bert-o4`, `arch=crammed-bert`): the text without gaps in rows of 128, [SEP] after each document;
  exactly 25 % of each row masked; no dropout; AdamW without decay of norms and biases, gradients clipped at 0.5; the
  rate rises from a quarter to the full one over 75 % of the budget and falls to 0; rows per step grow over 60 %. A step
  of the clock is a micro-batch, as there.

Two things differ for all. A full step has 32 rows, not 8,192 to 32,768, since an hour of one core reads about 100,000
rows; and everything runs on the CPU in one process: `torch.autocast` with bf16 (or fp32) for that of CUDA, no loss
scaling, and all ranks of GPT-BERT in one batch, which its network's arguments `num_masked` and `ratio` are for.
"""

import abc
import functools
import os
import random
import tempfile
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
import yaml
from anchor_models import AnchorModel, CrammedBert, GptBert, LtgBert, Settings, module_of
from torch import Tensor
from torch.utils.data import default_collate

from bertsmith.models.parts.config import BertConfig
from bertsmith.text.corpus.shards import Corpus

ROWS_PER_STEP = 32
LENGTH = 128  # tokens of a row at the start
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 cover a run evenly, however few there are


class Pieces:
    """The vocabulary with the two methods of a tokenizer of `tokenizers` that the data sets call."""

    def __init__(self, corpus: Corpus) -> None:
        vocabulary = corpus.vocabulary
        self._size = len(vocabulary)
        self.ids = {"pad": vocabulary.pad_id, "cls": vocabulary.cls_id, "sep": vocabulary.sep_id}
        self.ids |= {"s": vocabulary.cls_id, "mask": vocabulary.mask_id}
        self.num_special = 1 + max(vocabulary.special_ids)
        assert len(vocabulary.special_ids) == self.num_special, "special pieces come first"

    def token_to_id(self, piece: str) -> int:
        """The id of a special piece in either spelling, such as [MASK] or <mask>."""
        return self.ids[piece.strip("[]<>").lower()]

    def get_vocab_size(self) -> int:
        """The number of pieces."""
        return self._size


class Segments(Sequence[list[int]]):
    """Documents cut into rows of at most `length` consecutive pieces."""

    def __init__(self, documents: Sequence[npt.NDArray[np.integer]], length: int) -> None:
        self.documents, self.length = documents, length
        self.index = [(i, start) for i, tokens in enumerate(documents) for start in range(0, len(tokens), length)]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.index)

    def __getitem__(self, number: Any) -> Any:
        """The pieces of a row."""
        document, start = self.index[number]
        return self.documents[document][start : start + self.length].tolist()


class Recipe(abc.ABC):
    """How a repository trains; a new object for every run.

    Args:
        folder: the checkout.
        config: the shape.
        corpus: the text.
        steps: how often the clock ticks in this run.
    """

    model_class: type[Any]
    clip_norm: float

    def __init__(self, folder: Path, config: BertConfig, corpus: Corpus, steps: int) -> None:
        self.folder, self.config, self.corpus, self.steps = folder, config, corpus, steps
        self.pieces = Pieces(corpus)

    def start(self, rate: float) -> AnchorModel:
        """The new network with its optimizer and schedule."""
        self.model: AnchorModel = self.model_class(self.folder, self.config)
        self.model.network.train()
        self.optimizer = self.optimizer_of(rate)
        self.schedule = self.schedule_of()
        return self.model

    @abc.abstractmethod
    def optimizer_of(self, rate: float) -> torch.optim.Optimizer:
        """The optimizer."""

    @abc.abstractmethod
    def schedule_of(self) -> torch.optim.lr_scheduler.LRScheduler:
        """The schedule, by steps."""

    @abc.abstractmethod
    def batch(self, share: float) -> Any:
        """The next rows, after this share of the run."""

    @abc.abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """What is minimized."""

    def steps_now(self, share: float) -> int:
        """The number of batches whose gradients a step adds up."""
        return 1

    def tick(self, share: float, precision: str) -> None:
        """A step, or the part of one that the clock counts."""
        batch = self.batch(share)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = self.loss(batch)
        parts = self.steps_now(share)
        (loss / parts).backward()
        self._added = getattr(self, "_added", 0) + 1
        if self._added >= parts:
            torch.nn.utils.clip_grad_norm_(self.model.network.parameters(), self.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self._added = 0
        self.schedule.step()

    def groups(self, no_decay: Sequence[str], decay: float) -> list[dict[str, Any]]:
        """The parameters, without decay where a part of the name is listed."""
        named = list(self.model.network.named_parameters())
        spared = [parameter for name, parameter in named if any(part in name for part in no_decay)]
        decayed = [parameter for name, parameter in named if not any(part in name for part in no_decay)]
        return [{"params": decayed, "weight_decay": decay}, {"params": spared, "weight_decay": 0.0}]


def documents_of(corpus: Corpus) -> list[npt.NDArray[np.integer]]:
    """The tokens of the documents for training."""
    return [np.asarray(corpus.document_tokens(index)) for index in range(corpus.num_documents)]


def cycle(count: int) -> Iterator[int]:
    """The numbers below `count`, shuffled, again and again."""
    while True:
        yield from torch.randperm(count).tolist()


class LtgRecipe(Recipe):
    """See the top of the file."""

    model_class, clip_norm = LtgBert, 2.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        code = module_of(self.folder / "babylm/train/dataset.py")
        documents = documents_of(self.corpus)
        self.sets = {}
        for length in (LENGTH, 4 * LENGTH):
            # Their constructor reads a file of pieces; an empty one leaves all but the rows to be set.
            rows = code.Dataset(os.devnull, 0, 1, self.pieces, length, 0.15, 0.1)
            rows.segments = Segments(documents, length - 2)
            rows.n_special_tokens = rows.masking_strategy.n_special_tokens = self.pieces.num_special
            self.sets[length] = (rows, cycle(len(rows)))

    def optimizer_of(self, rate: float) -> torch.optim.Optimizer:
        """See `Recipe`."""
        lamb = module_of(self.folder / "babylm/train/lamb.py").Lamb
        return lamb(self.groups(["bias", "layer_norm", "embedding"], 0.1), rate, betas=(0.9, 0.98), eps=1e-6)

    def schedule_of(self) -> torch.optim.lr_scheduler.LRScheduler:
        """See `Recipe`."""
        code = module_of(self.folder / "babylm/train/utils.py")
        return code.cosine_schedule_with_warmup(self.optimizer, int(self.steps * 0.016), self.steps, 0.1)

    def batch(self, share: float) -> Any:
        """See `Recipe`."""
        times = 4 if share >= 0.9 else 1
        rows, order = self.sets[times * LENGTH]
        return default_collate([rows[next(order)] for _ in range(ROWS_PER_STEP // times)])

    def loss(self, batch: Any) -> Tensor:
        """See `Recipe`."""
        token_ids, absent, targets = batch
        targets = targets.t()
        prediction = self.model.network(token_ids.t(), absent, targets)
        return F.cross_entropy(prediction, targets.flatten()[targets.flatten() != -100])


class GptRecipe(Recipe):
    """See the top of the file."""

    model_class, clip_norm = GptBert, 2.0

    def __init__(self, *arguments: Any, masked_share: float = 15 / 16) -> None:
        super().__init__(*arguments)
        self.masked_share = masked_share  # of the rows
        code = module_of(self.folder / "pretraining/dataset.py")
        settings = types.SimpleNamespace(
            n_special_tokens=self.pieces.num_special,
            vocab_size=self.pieces.get_vocab_size(),
            mask_random_p=0.1,
            mask_keep_p=0.1,
            mask_p_start=0.3,
            mask_p_end=0.15,
            max_steps=self.steps,
        )
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "documents.bin")
            torch.save([torch.from_numpy(tokens.astype(np.int16)) for tokens in documents_of(self.corpus)], file)
            self.sets = {}
            for length in (LENGTH, 2 * LENGTH, 4 * LENGTH):
                for kind in (code.MaskedDataset, code.CausalDataset):
                    rows = kind(file, self.pieces, settings, length, None, None)
                    self.sets[length, kind is code.MaskedDataset] = (rows, cycle(len(rows)))

    def optimizer_of(self, rate: float) -> torch.optim.Optimizer:
        """See `Recipe`."""
        lamb = module_of(self.folder / "pretraining/lamb.py").Lamb
        return lamb(self.groups(["bias", "layer_norm"], 0.1), rate, betas=(0.9, 0.98), eps=1e-8)

    def schedule_of(self) -> torch.optim.lr_scheduler.LRScheduler:
        """See `Recipe`."""
        code, few = module_of(self.folder / "pretraining/utils.py"), int(self.steps * 0.016)
        return code.cosine_schedule_with_warmup_cooldown(self.optimizer, few, few, self.steps, 0.1)

    def batch(self, share: float) -> Any:
        """See `Recipe`."""
        times = 4 if share >= 0.9 else 2 if share >= 0.7 else 1
        full = ROWS_PER_STEP // times
        count = full / 4 * (1 - share) + full * share
        drawn: list[Any] = []
        for is_masked, part in ((True, self.masked_share), (False, 1 - self.masked_share)):
            rows, order = self.sets[times * LENGTH, is_masked]
            rows.set_global_step(share * self.steps)
            drawn.append([rows[next(order)] for _ in range(max(1, int(int(count + 0.5) * part + 0.5)))])
        token_ids, targets, absent, _ = default_collate([*drawn[0], *drawn[1]])
        return token_ids.t(), absent, targets.t(), len(drawn[0])

    def loss(self, batch: Any) -> Tensor:
        """See `Recipe`."""
        token_ids, absent, targets, num_masked = batch
        loss, *_, z_loss, _ = self.model.network(token_ids, absent, targets, num_masked, self.masked_share)
        return loss + 1e-4 * z_loss


class CrammingRecipe(Recipe):
    """See the top of the file."""

    model_class = CrammedBert
    micro_rows = 8

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        train = yaml.safe_load((self.folder / "cramming/config/train/bert-o4.yaml").read_text())
        adam = yaml.safe_load((self.folder / "cramming/config/train/optim/adam.yaml").read_text())
        self.settings, self.clip_norm = {**train, "optim": {**adam, **train["optim"]}}, train["gradient_clipping"]
        sep = [self.pieces.token_to_id("[SEP]")]
        joined = np.concatenate([part for tokens in documents_of(self.corpus) for part in (tokens, sep)])
        self.rows = torch.from_numpy(joined[: len(joined) // LENGTH * LENGTH].astype(np.int64)).view(-1, LENGTH)
        self.order = cycle(len(self.rows))
        # Their collator, of which only the masking is called, with the attributes that it reads.
        collator = module_of(self.folder / "cramming/backend/utils.py").PatchedDataCollatorForLanguageModeling
        self.mask = functools.partial(
            collator.torch_mask_tokens,
            types.SimpleNamespace(
                mlm_probability=train["objective"]["mlm_probability"],
                use_80_20_rule=train["objective"]["use_80_20_rule"],
                token_drop=train["objective"]["token_drop"],
                mask_token=self.pieces.token_to_id("[MASK]"),
                tokenizer=range(self.pieces.get_vocab_size()),
            ),
        )

    def start(self, rate: float) -> AnchorModel:
        """See `Recipe`; without dropout (`pretrain_in_train_mode` is off)."""
        model = super().start(rate)
        model.network.train(self.settings["pretrain_in_train_mode"])
        return model

    def optimizer_of(self, rate: float) -> torch.optim.Optimizer:
        """See `Recipe`."""
        optim = Settings(self.settings["optim"])
        groups = self.groups(self.settings["limited_decay_keys"], float(optim.weight_decay))
        return torch.optim.AdamW(groups, lr=rate, betas=tuple(optim.betas), eps=float(optim.eps))

    def schedule_of(self) -> torch.optim.lr_scheduler.LRScheduler:
        """See `Recipe`; by the number of micro-batches, which is the elapsed part of the budget."""
        code = module_of(self.folder / "cramming/backend/optimizers/schedulers.py")
        return code.get_triangle(self.optimizer, self.steps, falloff=0.25, base_percentage=0.25)

    def steps_now(self, share: float) -> int:
        """See `Recipe`."""
        rows = ROWS_PER_STEP * share / self.settings["batch_size_ramp"]
        return min(int(rows // self.micro_rows + 1), ROWS_PER_STEP // self.micro_rows)

    def batch(self, share: float) -> Any:
        """See `Recipe`."""
        return self.mask(self.rows[[next(self.order) for _ in range(self.micro_rows)]])

    def loss(self, batch: Any) -> Tensor:
        """See `Recipe`."""
        token_ids, targets = batch
        return self.model.network(token_ids, labels=targets)["loss"]


ANCHORS: dict[str, tuple[str, Callable[..., Recipe]]] = {  # the name of the checkout, and the recipe
    "ltg-bert": ("ltg-bert", LtgRecipe),
    "gpt-bert": ("gpt-bert", GptRecipe),
    "gpt-bert-half": ("gpt-bert", functools.partial(GptRecipe, masked_share=1 / 2)),
    "cramming": ("cramming", CrammingRecipe),
}


def pretrain_anchor(
    arm: str,
    peers: dict[str, Path],
    config: BertConfig,
    corpus: Corpus,
    *,
    steps: int,
    seed: int,
    precision: str,
    is_trial: bool,
    mark: Callable[[], None],
    losses: list[float] | None = None,
) -> AnchorModel:
    """A new model after some steps.

    Args:
        arm: a name of `ANCHORS` and a learning rate, such as "ltg-bert@1e-2".
        peers: the folders of the checkouts, by name.
        precision: fp32 or bf16.
        is_trial: whether steps come from all parts of the run in turn, because they do not all take equally long.
        mark: called before the model is made, before the first step and after each step; it may raise an exception.
        losses: receives the training loss of every step.
    """
    name, _, rate = arm.partition("@")
    checkout, recipe_class = ANCHORS[name]
    random.seed(seed)
    torch.manual_seed(seed)
    recipe = recipe_class(peers[checkout].resolve(), config, corpus, steps)
    mark()
    model = recipe.start(float(rate))
    mark()
    loss = recipe.loss
    if losses is not None:
        recipe.loss = lambda batch: _noted(loss(batch), losses)  # type: ignore[method-assign]
    for step in range(steps):
        recipe.tick(step * GOLDEN % 1 if is_trial else step / steps, precision)
        mark()
    model.eval()
    return model


def _noted(loss: Tensor, losses: list[float]) -> Tensor:
    losses.append(loss.item())
    return loss
