"""Reads and writes the folder of a translation model, which has the same files as every model folder."""

from pathlib import Path

import torch

from bertsmith.base.storage.files import atomic_folder, read_json, require_file, write_json, write_text
from bertsmith.models.checkpoints.model_folder import fit_vocabulary, no_vocabulary, require_numbers
from bertsmith.models.checkpoints.weights import MODEL_FOLDER, read_weights, write_safetensors
from bertsmith.models.encoders.encoder_decoders import encoder_decoder_config, new_encoder_decoder
from bertsmith.models.model_files.metadata import CARD, SAFETENSORS, ModelMetadata, read_metadata, write_metadata
from bertsmith.models.model_files.tokenizer_files import read_tokenizer
from bertsmith.models.model_files.tokenizer_writing import write_tokenizer
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.training.loop.optimizer import require_fit

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
    config = model.config
    with atomic_folder(path, replace=MODEL_FOLDER if replace else False) as partial:
        write_json(partial / "config.json", {"model_type": config.model_type, **config.to_dict()})
        write_safetensors(partial / SAFETENSORS, model.state_dict())
        write_tokenizer(partial, tokenizer, config)
        write_text(partial / CARD, _card(config, tokenizer, metadata, scored_pairs))
        write_metadata(partial, tokenizer, metadata)


def read_translation_model(path: Path | str) -> tuple[EncoderDecoder, Tokenizer]:
    """The model of a folder, or of the run that has it, in evaluation mode, and its tokenizer."""
    folder = Path(path)
    if not (folder / "config.json").exists() and (folder / "model" / "config.json").exists():
        folder = folder / "model"
    require_file(folder / "config.json", "the configuration of a translation model")
    config = encoder_decoder_config(read_json(folder / "config.json"), str(folder))
    metadata = read_metadata(folder)
    tokenizer, _ = read_tokenizer(folder, metadata)
    if tokenizer is None:
        raise no_vocabulary(folder)
    fit_vocabulary(tokenizer.vocabulary, config, f"'{folder}'")
    tensors = read_weights(folder)
    with torch.device("meta"):
        model = new_encoder_decoder(config, seed=None)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    require_fit(shapes, model.state_dict(), f"the {config.display_name} in '{folder}'")
    require_numbers(tensors, f"'{folder}'")
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
    return model.eval(), tokenizer


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
