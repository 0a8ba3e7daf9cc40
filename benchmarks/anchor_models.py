"""Models of public recipes for little text, from checkouts of their own repositories, and how they are scored.

A checkout is a folder that the caller names. Its classes are imported as they are, and so are its configuration files,
of which only the vocabulary and the shape change: layers, width and heads are those of the size, and the feed-forward
width is in the same proportion to the width as in their file, rounded to a multiple of 16.

* LTG-BERT, github.com/ltgoslo/ltg-bert: `babylm/train/model.py`, `babylm/configs/base.json`;
* GPT-BERT, github.com/ltgoslo/gpt-bert: `pretraining/model_extra.py`, `configs/base.json`;
* Cramming's BERT, github.com/JonasGeiping/cramming: `cramming/architectures/crammed_bert.py`, `arch/crammed-bert.yaml`.

Where a file imports a package that its class does not need (smart_open, einops, datasets) or of which it needs a
dictionary with attributes (omegaconf), an empty module or such a dictionary takes its place during the import.

Scores are those of all arms: the same held-out rows and masks, and logistic regression on the same texts. Each model
reads rows in its own format: GPT-BERT has no [SEP] at the end, Cramming's no [CLS] at the start, so these are left out.
GPT-BERT predicts a masked piece at the position before it.

N rows, T tokens of the longest row, D width, M masked positions, V vocabulary.
"""

import abc
import functools
import importlib
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from bertsmith.base.core.progress import Progress
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.layer_choice import LayerChoice
from bertsmith.tasks.encoding.row_encoder import RowEncoder, Vectors
from bertsmith.tasks.encoding.units import Ints, RowPart, rows_by_first
from bertsmith.text.tokenizers.pack import PackedRows
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.training.pretraining.held_out_scores import HeldOutRows

MICRO_TOKENS = 2048


class Settings(dict[str, Any]):
    """A dictionary whose items are also attributes, at every depth, as in OmegaConf."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return Settings(self[name]) if isinstance(self[name], dict) else self[name]


def stand_in(name: str, **members: Any) -> types.ModuleType:
    """A module with these members, for an import that cannot be satisfied."""
    module = types.ModuleType(name)
    vars(module).update(members)
    return module


STAND_INS = {
    "smart_open": stand_in("smart_open", open=open),
    "omegaconf": stand_in("omegaconf", OmegaConf=types.SimpleNamespace(create=Settings)),
    "einops": stand_in("einops", rearrange=None, repeat=None),
    "einops.layers": stand_in("einops.layers"),
    "einops.layers.torch": stand_in("einops.layers.torch", Rearrange=None),
    "datasets": stand_in("datasets"),
    "datasets.distributed": stand_in("datasets.distributed", split_dataset_by_node=None),
}


@functools.cache
def module_of(file: Path) -> types.ModuleType:
    """The module in a file of a checkout; relative imports look in its folder and the one above.

    The `__init__.py` of these folders are not run, since they import all that the repository can do.
    """
    package = f"checkout.{file.parent.name}"
    folders = {"checkout": file.parent.parent, package: file.parent}
    packages = {name: stand_in(name, __path__=[str(folder)]) for name, folder in folders.items()}
    missing = {name: module for name, module in STAND_INS.items() if name not in sys.modules}
    sys.modules.update({**missing, **packages})
    try:
        return importlib.import_module(f"{package}.{file.stem}")
    finally:
        # Modules of other packages that were imported on the way stay.
        for name in list(sys.modules):
            if name in missing or name.partition(".")[0] == "checkout":
                del sys.modules[name]


class AnchorModel(abc.ABC):
    """A network of a repository that is scored like a model of ours.

    Attributes:
        network: the module of the repository, with all parameters.
        trimmed: the number of special tokens at the start and at the end of a row of ours that its rows do not have.
        ahead: how many positions before a piece its prediction is.
    """

    network: nn.Module
    trimmed = (0, 0)
    ahead = 0

    def __init__(self, config: BertConfig) -> None:
        self.width, self.num_layers, self.max_tokens = config.hidden_size, config.num_hidden_layers, 512

    @abc.abstractmethod
    def hidden_states(self, token_ids: Tensor, present: Tensor) -> list[Tensor]:
        """The embeddings and the output of each layer, [N, T, D] each.

        Args:
            token_ids: int64 [N, T].
            present: bool [N, T], False for padding.
        """

    @abc.abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """[M, V] from last hidden states [M, D]."""

    @abc.abstractmethod
    def row_loss(self, token_ids: Tensor, targets: Tensor) -> Tensor:
        """The summed loss of one row as the repository computes it, for `check_scores`.

        Args:
            token_ids: int64 [1, T], in the format of the repository.
            targets: int64 [1, T], -100 where nothing is predicted.
        """

    def eval(self) -> None:
        """Evaluation mode."""
        self.network.eval()

    def __call__(self, batch: Batch, *, read: Read, masked: Tensor) -> types.SimpleNamespace:
        """`mlm_logits` [M, V], as those of a model of ours."""
        token_ids, present, rows = padded(batch, self.trimmed)
        flat = read.positions[masked]
        columns = batch.positions[flat] - self.trimmed[0] - self.ahead
        hidden = self.hidden_states(token_ids, present)[-1]
        return types.SimpleNamespace(mlm_logits=self.logits(hidden[rows[flat], columns]))


def padded(batch: Batch, trimmed: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids and presence, [N, T] each, of a flat batch without some tokens at both ends, and the row of each token.

    >>> import numpy as np
    >>> batch = Batch.from_flat(np.array([2, 7, 3, 2, 8, 9, 3]), np.zeros(7, dtype=int), [3, 4])
    >>> ids, present, rows = padded(batch, (0, 1))
    >>> ids.tolist(), present.tolist(), rows.tolist()
    ([[2, 7, 0], [2, 8, 9]], [[True, True, False], [True, True, True]], [0, 0, 0, 1, 1, 1, 1])
    """
    lengths = torch.tensor(batch.lengths)
    rows, counts = torch.repeat_interleave(torch.arange(len(lengths)), lengths), lengths - sum(trimmed)
    columns = batch.positions - trimmed[0]
    kept = (columns >= 0) & (columns < counts[rows])
    token_ids = torch.zeros(len(lengths), int(counts.max()), dtype=torch.int64)
    token_ids[rows[kept], columns[kept]] = batch.token_ids[kept]
    return token_ids, torch.arange(token_ids.shape[1]) < counts[:, None], rows


@torch.inference_mode()
def check_scores(model: AnchorModel, rows: HeldOutRows, loss: float) -> None:
    """Asserts that a held-out loss is the one of the network's own forward pass, row by row and without padding."""
    model.eval()
    labels = np.full_like(rows.targets.token_ids, -100)
    labels[rows.targets.positions] = rows.targets.target_ids
    ends, total = np.cumsum(rows.lengths), 0.0
    for start, end in zip(ends - rows.lengths, ends, strict=True):
        kept = slice(start + model.trimmed[0], end - model.trimmed[1])
        numbers = (rows.targets.token_ids[kept], labels[kept])
        token_ids, targets = (torch.from_numpy(part.astype(np.int64))[None] for part in numbers)
        total += float(model.row_loss(token_ids, targets))
    expected = total / rows.num_masked
    assert abs(loss - expected) < 1e-3, f"the loss is {loss}, the repository's own {expected}"


def outputs_of(modules: Sequence[nn.Module], run: Any) -> Iterator[Tensor]:
    """What each call of these modules returns while `run` runs, in order; the first element of a tuple."""
    outputs: list[Tensor] = []
    hooks = [
        module.register_forward_hook(
            lambda *call: outputs.append(call[2][0] if isinstance(call[2], tuple) else call[2])
        )
        for module in modules
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return iter(outputs)


def shape(config: BertConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """Their configuration with our vocabulary and shape."""
    inner = config.hidden_size * values["intermediate_size"] / values["hidden_size"]
    return {
        **values,
        "vocab_size": config.vocab_size,
        "num_hidden_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": round(inner / 16) * 16,
    }


class LtgBert(AnchorModel):
    """LTG-BERT: disentangled relative positions, gated feed-forward, norms before and after attention.

    Source: Samuel, Kutuzov, Øvrelid and Velldal (2023), "Trained on 100 million words and still in shape".
    """

    def __init__(self, folder: Path, config: BertConfig) -> None:
        super().__init__(config)
        self.settings = shape(config, json.loads((folder / "babylm/configs/base.json").read_text()))
        self.network = module_of(folder / "babylm/train/model.py").Bert(Settings(self.settings))

    def hidden_states(self, token_ids: Tensor, present: Tensor) -> list[Tensor]:
        """See `AnchorModel`."""
        network, absent = self.network, ~present[:, None, None, :]
        embedded, relative = network.embedding(token_ids.t())
        states, _ = network.transformer.forward_all_hidden_states(embedded, absent, relative)
        return [state.transpose(0, 1) for state in states]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `AnchorModel`."""
        return self.network.classifier(hidden)

    def row_loss(self, token_ids: Tensor, targets: Tensor) -> Tensor:
        """See `AnchorModel`."""
        predicted = self.network(token_ids.t(), torch.zeros_like(token_ids, dtype=torch.bool), targets.t())
        return F.cross_entropy(predicted, targets[targets != -100], reduction="sum")


class GptBert(AnchorModel):
    """GPT-BERT: LTG-BERT with gated attention and layers that weigh all earlier ones, trained on two objectives.

    Source: Charpentier and Samuel (2024), "BERT or GPT: why not both?".
    """

    trimmed, ahead = (0, 1), 1

    def __init__(self, folder: Path, config: BertConfig) -> None:
        super().__init__(config)
        self.settings = shape(config, json.loads((folder / "configs/base.json").read_text()))
        self.network = module_of(folder / "pretraining/model_extra.py").Bert(Settings(self.settings))

    def hidden_states(self, token_ids: Tensor, present: Tensor) -> list[Tensor]:
        """See `AnchorModel`."""
        network, absent = self.network, ~(present[:, :, None] & present[:, None, :])
        # A layer is an attention and a feed-forward part, each followed by the weighing of all earlier outputs.
        outputs = outputs_of(
            [network.embedding.dropout, network.transformer.dwa_modules],
            lambda: network.get_contextualized(token_ids.t(), absent),
        )
        embedded, *parts = outputs
        return [state.transpose(0, 1) for state in (embedded, *parts[1::2])]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `AnchorModel`."""
        return self.network.classifier.nonlinearity(hidden)

    def row_loss(self, token_ids: Tensor, targets: Tensor) -> Tensor:
        """See `AnchorModel`."""
        following = torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], -100)], dim=1)
        absent = torch.zeros(1, token_ids.shape[1], token_ids.shape[1], dtype=torch.bool)
        loss, _, _, count = self.network(token_ids.t(), absent, following.t())
        return loss * count


class CrammedBert(AnchorModel):
    """Cramming's BERT: norms before the parts and at the end, no biases, gated feed-forward, no head.

    Source: Geiping and Goldstein (2023), "Cramming: Training a Language Model on a Single GPU in One Day".
    """

    trimmed = (1, 0)

    def __init__(self, folder: Path, config: BertConfig) -> None:
        super().__init__(config)
        train = yaml.safe_load((folder / "cramming/config/train/bert-o4.yaml").read_text())
        values = yaml.safe_load((folder / "cramming/config/arch/crammed-bert.yaml").read_text())
        values["num_transformer_layers"] = config.num_hidden_layers
        # The gate halves the inner width, which their code does not make up for.
        values["intermed_size"] = config.hidden_size * values["intermed_size"] // values["hidden_size"]
        values["hidden_size"] = values["embedding"]["embedding_dim"] = config.hidden_size
        values["attention"]["num_attention_heads"] = config.num_attention_heads
        values["embedding"]["vocab_size"] = config.vocab_size
        values["sparse_prediction"] = train["objective"]["mlm_probability"]
        values["norm_eps"] = float(values["norm_eps"])  # YAML reads 1e-12 as text
        self.settings, self.max_tokens = values, values["embedding"]["max_seq_length"]
        module = module_of(folder / "cramming/architectures/crammed_bert.py")
        self.network = module.ScriptableLMForPreTraining(module.crammedBertConfig(values))

    def hidden_states(self, token_ids: Tensor, present: Tensor) -> list[Tensor]:
        """See `AnchorModel`; the last one after the final norm."""
        encoder, mask = self.network.encoder, None if bool(present.all()) else present.float()
        parts = [encoder.embedding, *encoder.layers, encoder.final_norm]
        embedded, *layers, last = outputs_of(parts, lambda: encoder(token_ids, mask))
        return [embedded, *(state.transpose(0, 1) for state in layers[:-1]), last]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `AnchorModel`."""
        return self.network.decoder(self.network.prediction_head(hidden))

    def row_loss(self, token_ids: Tensor, targets: Tensor) -> Tensor:
        """See `AnchorModel`."""
        return F.cross_entropy(self.network(token_ids)["outputs"], targets.flatten(), reduction="sum")


class AnchorEncoder(RowEncoder):
    """The frozen encoder of an anchor's model, for probes: mean vectors over the tokens of each row."""

    def __init__(self, model: AnchorModel, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, Runtime(device="cpu", precision="fp32"), has_pooler=False)
        self.model: Any = model

    def row_vectors(
        self, rows: PackedRows, choice: LayerChoice, pooling: str = "mean", progress: Progress | None = None
    ) -> Vectors:
        """See `RowEncoder`."""
        assert pooling == "mean", "the only pooling of the probes"
        model: AnchorModel = self.model
        model.eval()

        @torch.inference_mode()
        def means(part: RowPart) -> Vectors:
            token_ids, present, _ = padded(part.gather("cpu").batch, model.trimmed)
            states = torch.stack(model.hidden_states(token_ids, present))[list(choice.layers)]  # [n, N, T, D]
            total = (states * present[:, :, None]).sum(dim=2) / present.sum(dim=1)[:, None]
            vectors: Vectors = total.transpose(0, 1).flatten(1).numpy()
            return vectors

        width = (choice.width(self.hidden_size),)
        features = rows_by_first(rows)
        return self._collect(features, means, width, "texts", micro_tokens=MICRO_TOKENS, progress=progress)

    def token_vectors(self, rows: PackedRows, choice: LayerChoice, read: Ints | None = None) -> Vectors:
        """Not needed by the probes."""
        raise NotImplementedError
