"""The result of every checkpoint reader, and the checks that do not depend on the format."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import CheckpointError, VocabularyError, some
from bertsmith.base.core.finite import not_finite
from bertsmith.models.checkpoints.hub import shown
from bertsmith.models.checkpoints.plan import POSITIONS, LoadReport, fixed_positions, plan_loading
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.parameter_names import Match, ParameterNames
from bertsmith.models.parts.part_names import DECODER, OWN_HEAD, PARTS, part_of, with_prefix
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

# A word table may have a few more rows than there are pieces, to make their number a multiple of one of these.
ROUND_HEIGHTS = (8, 16, 32, 64, 128)
# If the ids of the pieces are stated, it may have this many more rows, or this share of the pieces.
_MOST_SPARE, _SHARE_SPARE = 128, 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """A model read from disk.

    Attributes:
        tensors: parameters by our name, the encoder's prefixed with `bert.`; dtype as stored. Arrays of NumPy where the
            folder was read without torch.
        metadata: the content of `bertsmith.json` (task, labels), or what other tools' files say if there is none.
    """

    path: Path
    config: EncoderConfig
    tensors: "dict[str, Tensor]"
    tokenizer: Tokenizer | None
    metadata: ModelMetadata
    report: LoadReport

    @property
    def name(self) -> str:
        """The path, or "starter" for the model in the package; for messages."""
        return shown(self.path)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts beyond embeddings and layers that exist: pooler, mlm, nsp, classifier, span, decoder, own_head."""
        return parts_of(self.tensors, self.config)

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        if self.tokenizer is None:
            raise no_vocabulary(self.name)
        return self.tokenizer


def no_vocabulary(folder: Path | str) -> CheckpointError:
    """The error for a model without a vocabulary."""
    return CheckpointError(
        expected=f"a vocabulary next to the model in '{folder}'",
        found="no vocab.txt or tokenizer.json",
        fix="put the vocab.txt or tokenizer.json of the model there",
    )


def parts_of(tensors: Mapping[str, Any], config: EncoderConfig) -> tuple[str, ...]:
    """The parts beyond embeddings and layers that have a tensor.

    A language model whose head is the word table has that head (mlm) unless it has the head of a task.

    >>> from bertsmith.models.parts.config import BertConfig
    >>> parts_of({"bert.pooler.bias": 0, "bert.embeddings.norm.bias": 0, "mlm.bias": 0}, BertConfig())
    ('pooler', 'mlm')
    """
    present = {part_of(name) for name in tensors}
    if config.piece_head == "tied" and present.isdisjoint(("classifier", "span", DECODER, OWN_HEAD)):
        present.add("mlm")
    return tuple(part for part in PARTS if part in present)


def fit_vocabulary(vocabulary: Vocabulary, config: EncoderConfig, source: str) -> str | None:
    """None if the vocabulary has a piece for every row of the word table; a note if some rows are only padding."""
    pieces, rows = len(vocabulary), config.vocab_size
    if pieces == rows:
        return None
    is_rounded = any(-(-pieces // height) * height == rows for height in ROUND_HEIGHTS)
    most = max(_MOST_SPARE, _SHARE_SPARE * pieces) if vocabulary.has_ids else 0
    if pieces < rows and (is_rounded or rows - pieces <= most):
        return f"the word table has {rows} rows for {pieces} pieces; the last {rows - pieces} are never used"
    raise VocabularyError(
        expected=f"{rows} pieces in the vocabulary of {source}, as the configuration says",
        found=str(pieces),
        fix="use the vocab.txt that the model was trained with",
    )


def tensors_to_write(
    config: EncoderConfig,
    names: ParameterNames,
    tensors: "Mapping[str, Tensor]",
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata,
) -> "dict[str, Tensor]":
    """The parameters of a model by our full name, checked, with the table of positions that other tools need."""
    source = "the model to be written"
    ours = {with_prefix(name): tensor for name, tensor in tensors.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    plan_loading(shapes, Match, config, names, source, vectors_of_row=metadata.vectors_of_row)
    if tokenizer is not None:
        fit_vocabulary(tokenizer.vocabulary, config, source)
    metadata.check_labels(ours)
    has_table = any(row.ours == POSITIONS for row in names.embeddings) and not (
        names.absent is not None and names.absent(config, POSITIONS)
    )
    if config.position_embedding_type != "absolute" and has_table:
        ours[POSITIONS] = fixed_positions(config, ours)
    return ours


def require_numbers(tensors: "Mapping[str, Tensor]", source: str) -> None:
    """Checks that all tensors contain floating-point numbers, none of them infinite or NaN."""
    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    wrong = [f"{name} as {kind}" for name, kind in kinds.items() if "float" not in kind]
    if wrong:
        raise CheckpointError(
            expected=f"floating-point weights in {source}",
            found=some(wrong),
            fix="use the model from before quantisation",
        )
    if broken := not_finite(tensors):
        raise CheckpointError(
            expected=f"finite weights in {source}",
            found=f"infinite or NaN values in {some(broken)}",
            fix="the training diverged or the file is damaged; use an earlier checkpoint, or copy the file again",
        )
