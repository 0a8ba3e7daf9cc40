"""The command that counts parameters, of the published BERT sizes and of earlier models."""

from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import print_json, print_table, say

if TYPE_CHECKING:
    from bertsmith.app.library.request import SizesRequest

BERT_NAMES = ("tiny", "mini", "small", "medium", "base", "large")
HEADER = ("model", "layers", "hidden", "heads", "feed-forward", "vocabulary", "parameters")


def sizes(
    request: "SizesRequest",
    json: Annotated[bool, typer.Option("--json", help="one JSON object per line instead of the table")] = False,
) -> None:
    """Print the named sizes with their parameters, next to GPT and the Transformer of 2017.

    An encoder counts with its pooler, where it has one, and without the heads of pre-training. "hidden" is the width
    of the hidden states; the feed-forward network inside a layer is four times as wide.
    """
    from bertsmith.models.checkpoints.published_models import SUCCESSORS
    from bertsmith.models.parts.config import BertConfig

    rows: list[tuple[str, int, int, int, int, int, int]] = []
    for name in BERT_NAMES:
        config = BertConfig.named(name, vocab_size=request.vocab_size)
        rows.append(
            (
                f"BERT {name}",
                config.num_hidden_layers,
                config.hidden_size,
                config.num_attention_heads,
                config.intermediate_size,
                request.vocab_size,
                config.num_parameters(),
            )
        )
    rows += [
        (
            model.name,
            model.config.num_hidden_layers,
            model.config.hidden_size,
            model.config.num_attention_heads,
            model.config.intermediate_size,
            model.config.vocab_size,
            model.num_parameters,
        )
        for model in SUCCESSORS
    ]
    rows += [("GPT (2018)", 12, 768, 12, 3072, 40478, gpt_parameters()), _transformer_row()]
    if json:
        for row in rows:
            print_json(dict(zip(HEADER, row, strict=True)))
        return
    print_table(HEADER, rows)
    say("GPT is decoder-only; the Transformer has 6 encoder and 6 decoder layers and one table for both languages.")


def gpt_parameters() -> int:
    """Parameters of OpenAI's GPT: 12 layers of BERT base's shape, 40,478 pieces, 512 learned positions.

    >>> gpt_parameters()
    116534784

    Source: Radford et al. (2018), section 4.1.
    """
    return (40478 + 512) * 768 + 12 * (_attention(768) + _feed_forward(768, 3072))


def transformer_parameters(vocab_size: int = 37000, layers: int = 6, width: int = 512, inner: int = 2048) -> int:
    """Parameters of the encoder-decoder of 2017; its positions are computed and its word table is shared.

    >>> transformer_parameters()
    63082496

    Source: Vaswani et al. (2017), table 3; their 65 million are rounded.
    """
    encoder = layers * (_attention(width) + _feed_forward(width, inner))
    decoder = layers * (2 * _attention(width) + _feed_forward(width, inner))
    return vocab_size * width + encoder + decoder


def _transformer_row() -> tuple[str, int, int, int, int, int, int]:
    return ("Transformer (2017)", 6, 512, 8, 2048, 37000, transformer_parameters())


def _attention(width: int) -> int:
    """Parameters of four linear maps with biases, and of the layer norm after them."""
    return 4 * (width * width + width) + 2 * width


def _feed_forward(width: int, inner: int) -> int:
    """Parameters of two linear maps with biases, and of the layer norm after them."""
    return width * inner + inner + inner * width + width + 2 * width
