"""Reads and writes the folder of a translation model, which has the same files as every model folder."""

from pathlib import Path

from bertsmith.models.checkpoints.architectures import ENCODER_DECODERS, new_encoder_decoder
from bertsmith.models.checkpoints.own_folder import read_own_folder, write_own_folder
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.text.tokenizers.tokenizer import Tokenizer

TASK = "translation"


def write_translation_model(
    path: Path,
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    metadata: ModelMetadata,
    *,
    scored_pairs: int = 0,
    replace: bool = False,
) -> None:
    """Writes a model, its tokenizer, its metadata and a card.

    Args:
        scored_pairs: the number of dev pairs that the scores are of.
        replace: overwrite an existing folder that contains a model.
    """
    card = _card(model.config, tokenizer, metadata, scored_pairs)
    write_own_folder(path, model.config, model.state_dict(), tokenizer, metadata, card, replace=replace)


def read_translation_model(path: Path | str) -> tuple[EncoderDecoder, Tokenizer]:
    """The model of a folder, or of the run that has it, in evaluation mode, and its tokenizer."""
    model, tokenizer, _ = read_own_folder(
        path,
        "a translation model",
        ENCODER_DECODERS,
        "train-translation",
        lambda config, *_: new_encoder_decoder(config, seed=None),
    )
    return model, tokenizer


def _card(config: EncoderConfig, tokenizer: Tokenizer, metadata: ModelMetadata, scored_pairs: int) -> str:
    """What the model is, for people."""
    scores = "".join(f"- {name}: {value:.4f}\n" for name, value in metadata.scores.items())
    return (
        "---\nlibrary_name: bertsmith\npipeline_tag: translation\n---\n\n"
        f"# {config.display_name} for translation\n\n"
        f"- {config.num_hidden_layers} layers of encoder and of decoder, width {config.hidden_size}; "
        f"{config.num_parameters():,} parameters.\n"
        f"- A vocabulary of {len(tokenizer.vocabulary):,} {tokenizer.kind} for both sides.\n"
        f"- {metadata.steps or 0:,} steps of training on pairs of texts.\n"
        + (f"\n## Scores on {scored_pairs:,} dev pairs\n\n{scores}" if scores else "")
        + "\n## Use\n\n`bertsmith translate --model DIR` translates each line of stdin.\n"
    )
