"""The table of parameter names of an architecture with BERT's layers; see `ParameterNames`.

Such architectures differ in how Hugging Face calls the parts of a layer and where the heads are, and in whether they
have segments, embeddings of a width of their own, and a pooler in front of a classifier.
"""

from collections.abc import Sequence

from bertsmith.models.parts.parameter_names import ParameterNames, Row, dense, layer_norm, output

_E, _L = "bert.embeddings", "bert.layers.{i}"
# Hugging Face's BERT: query, key, value, attention output and its norm, intermediate, output and its norm.
BERT_PARTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
# Where a classifier of whole texts has a pooler of its own.
CLASSIFIER_WITH_POOLER = {
    "ForSequenceClassification": {
        "bert.pooler.weight": "classifier.dense.weight",
        "bert.pooler.bias": "classifier.dense.bias",
        "classifier.weight": "classifier.out_proj.weight",
        "classifier.bias": "classifier.out_proj.bias",
    }
}


def post_norm_layer(layer: str, parts: Sequence[str] = BERT_PARTS) -> tuple[Row, ...]:
    """The parameters of one layer.

    Args:
        layer: Hugging Face's name of a layer, with `{i}` for its number.
        parts: its names of the parts, in the order of `BERT_PARTS`.
    """
    query, key, value, attention_output, attention_norm, intermediate, last, last_norm = (f"{layer}.{x}" for x in parts)
    return (
        *dense(f"{_L}.query", query, "DD"),
        *dense(f"{_L}.key", key, "DD"),
        *dense(f"{_L}.value", value, "DD"),
        *dense(f"{_L}.attention_output", attention_output, "DD"),
        *layer_norm(f"{_L}.attention_norm", attention_norm),
        *dense(f"{_L}.intermediate", intermediate, "ID"),
        *dense(f"{_L}.output", last, "DI"),
        *layer_norm(f"{_L}.output_norm", last_norm),
    )


def post_norm_names(
    prefix: str,
    class_prefix: str,
    *,
    layer: tuple[Row, ...],
    pooler: str,
    transform: tuple[str, str],
    pieces: str,
    copies: Sequence[str],
    segments: bool = True,
    projection: str = "",
    more_embeddings: tuple[Row, ...] = (),
) -> ParameterNames:
    """The table of an architecture; `dataclasses.replace` adds what it alone has.

    Args:
        transform: its names of the layer and of the norm of the masked-LM head.
        pieces: its name of what holds the bias of the pieces in that head.
        copies: its names of second copies: of the word table (a weight), and of that bias (a bias), if it has one.
        projection: its name of the layer from the embeddings to the hidden states; none if both have the same width.
    """
    theirs, width = f"{prefix}embeddings", "E" if projection else "D"
    return ParameterNames(
        prefix=prefix,
        class_prefix=class_prefix,
        embeddings=(
            Row(f"{_E}.word.weight", f"{theirs}.word_embeddings.weight", f"V{width}"),
            Row(f"{_E}.position.weight", f"{theirs}.position_embeddings.weight", f"P{width}"),
            *(
                (Row(f"{_E}.segment.weight", f"{theirs}.token_type_embeddings.weight", f"S{width}"),)
                if segments
                else ()
            ),
            *layer_norm(f"{_E}.norm", f"{theirs}.LayerNorm", shape=width),
            *(dense(f"{_E}.projection", projection, "DE") if projection else ()),
            *more_embeddings,
        ),
        layer=layer,
        parts={
            "pooler": dense("bert.pooler", pooler, "DD"),
            "mlm": (
                *dense("mlm.transform", transform[0], f"{width}D"),
                *layer_norm("mlm.norm", transform[1], shape=width),
                Row("mlm.bias", f"{pieces}.bias", "V"),
            ),
            "classifier": output("classifier", "classifier", "KD"),
            "span": output("span", "qa_outputs", "2D"),
        },
        copies={name: f"{_E}.word.weight" if name.endswith("weight") else "mlm.bias" for name in copies},
    )
