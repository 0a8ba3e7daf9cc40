"""What a model can do: the methods of `Model` that it supports."""

from collections.abc import Collection
from typing import Any

from bertsmith.app.library.by_labels import BY_LABELS
from bertsmith.base.core.errors import CheckpointError
from bertsmith.inference.predictors.pair_scorer import can_score_pairs, entailed_label
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.tasks.encoding.engine import MASKED
from bertsmith.tasks.encoding.row_encoder import RowEncoder
from bertsmith.text.tokenizers.encoded import Pieces
from bertsmith.text.tokenizers.vocabulary import Vocabulary

# Not among the abilities of a model: every model shows the pieces of a text, and `embed` is the name of both ways.
PIECES, EMBED_IDS = "pieces", "embed_ids"
OF_TASKS = {
    "classification": "classify",
    "regression": "score",
    "reranking": "score",
    "choice": "choose",
    "selection": "choose",
    "tagging": "tag",
    "entities": "tag",
    "entities-by-name": "tag",
    "span": "answer",
    "generation": "generate",
    "extraction": "extract",
    "coreference": "resolve",
}
# What trains a model for it, where that is not the default.
_MADE_BY = {"next_sentence": " (pretrain --objective nsp, mlm+nsp or mlm+sop, with --init in minutes)"}


def no_ability(ability: str, abilities: Collection[str], name: str, task: str | None) -> CheckpointError:
    """The error for a model that does not support a method."""
    return CheckpointError(
        expected=f"a model with the ability {ability}{_MADE_BY.get(ability, '')}",
        found=f"'{name}', a model {'without a task head' if task is None else f'for {task}'}",
        fix=f"it has {', '.join(abilities)}; load another one",
    )


def require_attention(encoder: RowEncoder, name: str) -> None:
    """Checks that an encoder gives its attention weights."""
    if not encoder.is_torch:
        raise CheckpointError(
            expected="a model in torch, for its attention weights",
            found=f"'{name}', which ONNX Runtime computes",
            fix="use the model it was exported from, or install torch if this is a model folder",
        )
    if not encoder.attention_maps:
        raise CheckpointError(
            expected="a model with attention", found=f"'{name}', which has none", fix="use a Transformer"
        )


def find_abilities(
    predictor: Predictor | None,
    pretrained: PretrainedPredictor | None,
    embedder: Embedder | None,
    parts: Collection[str],
) -> tuple[str, ...]:
    """The methods that a model supports.

    Args:
        predictor: the model with a task head, if it has one.
        pretrained: the model with pre-training heads, if it has them.
        embedder: with the encoder below all heads; None for a model on words.
        parts: with `pretrained`, the trained parts beyond the encoder.
    """
    abilities = [] if predictor is None else [OF_TASKS[predictor.task.spec.kind]]
    if pretrained is not None:
        abilities += ["fill"] if "mlm" in parts and pretrained.engine.predicts == MASKED else []
        abilities += ["complete"] if "mlm" in parts and pretrained.engine.predicts != MASKED else []
        abilities += ["perplexity"] if "mlm" in parts and pretrained.engine.directions else []
        abilities += ["next_sentence"] if {"nsp", "pooler"} <= set(parts) else []
    if embedder is not None and embedder.has_vectors:
        abilities += ["embed", "features"] if embedder.encoder.is_torch else ["embed"]
    spec = None if predictor is None else predictor.task.spec
    abilities += ["rerank"] if spec is None or can_score_pairs(spec) else []
    if embedder is not None and (embedder.has_vectors if spec is None else entailed_label(spec) is not None):
        abilities.append(BY_LABELS)
    return tuple(abilities)


def shown_pieces(text: Pieces, vocabulary: Vocabulary) -> dict[str, Any]:
    """The pieces, ids and character offsets of a text, and which pieces are special, for JSON."""
    ids = text.ids.tolist()
    offsets = [list(span) for span in zip(text.starts.tolist(), text.ends.tolist(), strict=True)]
    special = [id in vocabulary.special_ids for id in ids]
    return {"pieces": [vocabulary.pieces[id] for id in ids], "ids": ids, "offsets": offsets, "special": special}
