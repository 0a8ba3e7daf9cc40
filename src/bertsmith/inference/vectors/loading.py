"""Embedders and token features from a folder, a checkpoint or a hub id."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.machine.runtime import require_torch
from bertsmith.base.storage.addresses import address_of
from bertsmith.inference.export.built_graph import Built, encoder_graph
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.inference.vectors.token_features import TokenFeatures
from bertsmith.models.checkpoints.hub import is_hub_id, resolve
from bertsmith.models.checkpoints.late_interaction import is_late_interaction, read_late_recipe
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.onnx_folder import OnnxFolder, is_onnx_folder, read_onnx_folder
from bertsmith.models.checkpoints.sentence_transformers import SentenceRecipe, read_recipe
from bertsmith.models.checkpoints.static_folder import read_static_folder
from bertsmith.models.model_files.tokenizer_files import lowercased
from bertsmith.tasks.encoding.early_engine import Early, EarlyEncoder
from bertsmith.tasks.encoding.onnx_engine import OnnxEngine
from bertsmith.tasks.encoding.row_encoder import RowEncoder
from bertsmith.tasks.encoding.static_encoder import StaticEncoder

if TYPE_CHECKING:
    from bertsmith.models.checkpoints.int8_scales import RecordedInt8


def load_encoder(
    source: Path | str,
    *,
    pooled: bool,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    int8: "RecordedInt8 | None" = None,
    characters: int | None = None,
    early: bool = False,
) -> tuple[RowEncoder, SentenceRecipe | None]:
    """The encoder of a source, set up to read texts as its recipe says, and the recipe if there is one.

    Args:
        source: a model folder, one of sentence-transformers, a Google checkpoint, a run, a hub id or an ONNX folder.
        pooled: texts get one vector each, so every step of the recipe must be supported here.
        characters: all that the encoder will read, about, of its last layer alone; None if unknown. For a few, torch is
            not imported; see `encoder_graph`.
        early: there may be little to read, so torch is imported only for more, or for other layers.
    """
    recipe = read_recipe(Path(source), pooled=pooled, layers=True)
    if recipe is None and (is_hub_id(source) or address_of(source) is not None):
        fetched = resolve(source)
        known = read_recipe(fetched, pooled=pooled, layers=True)
        recipe = known if known is not None and known.is_table else None
    if recipe is not None and recipe.is_table:
        return StaticEncoder(read_static_folder(recipe.encoder)), recipe
    encoder_path = source if recipe is None else recipe.encoder
    compute: dict[str, Any] = {"device": device, "precision": precision, "products": products}
    folder: OnnxFolder | ModelFolder
    built = None
    is_exported = is_onnx_folder(encoder_path)
    if not is_exported and (recipe is None or recipe.pieces is None) and (early or characters is not None):
        built = encoder_graph(encoder_path, characters=characters or 0, **compute)
    if built is not None:
        folder = built.folder
    elif is_exported:
        folder = read_onnx_folder(encoder_path)
    else:
        require_torch(source)
        folder = load_any(encoder_path)
    if recipe is None:  # of a run, or a name, the folder of the model may have one
        recipe = read_recipe(folder.path, pooled=pooled, layers=True)
    if recipe is not None and recipe.lowercase and folder.tokenizer is not None:
        folder = dataclasses.replace(folder, tokenizer=lowercased(folder.tokenizer))
    if recipe is not None and recipe.pieces is not None:
        from bertsmith.tasks.encoding.piece_encoder import load_piece_encoder

        if isinstance(folder, OnnxFolder):  # of a run, whose model is known to be of this kind only now
            folder = load_any(folder.path)
        compute |= {"most_active": recipe.most_active, "queries": recipe.queries}
        return load_piece_encoder(folder, recipe.pieces, **compute), recipe
    if isinstance(folder, OnnxFolder):
        if built is None or not early:
            graph = None if built is None else built.graph
            return OnnxEngine(folder, **compute, built=graph).encoder(folder.tokenizer), recipe
        built, kept = built._replace(folder=folder), Path(source).absolute() if Path(source).exists() else source
        return early_encoder(built, lambda: load_encoder(kept, pooled=pooled, **compute)[0]), recipe
    from bertsmith.tasks.encoding.loading import load_frozen_encoder

    return load_frozen_encoder(folder, device=device, precision=precision, products=products, int8=int8), recipe


def load_embedder(
    source: Path | str,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    layers: str = "last",
    max_length: int | None = None,
    prompt: str | None = None,
    dimensions: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    int8: "RecordedInt8 | None" = None,
    characters: int | None = None,
    early: bool = False,
    sparse: bool = False,
) -> Embedder:
    """The embedder of a model folder, one of sentence-transformers, a Google checkpoint, a run or a hub id.

    Args:
        pooling: None: as the folder says, or the mean if it says nothing.
        normalize: None: as the folder says, or no if it says nothing.
        max_length: None: as the folder says, or the model's positions if it says nothing.
        prompt: the name of one of the folder's prompts, or "none"; None: the folder's default.
        dimensions: how many of the first numbers of each vector are kept; None: as many as the folder says, or all.
        characters, early: see `load_encoder`.
        sparse: the caller takes sparse vectors, too; otherwise a model that gives them is refused.
    """
    compute = {"device": device, "precision": precision, "products": products}
    known = characters if layers == "last" else None
    encoder, recipe = load_encoder(source, pooled=True, int8=int8, characters=known, early=early, **compute)
    if encoder.is_sparse and not sparse:
        raise CheckpointError(
            expected=f"a model of dense vectors in '{source}'",
            found="one of sparse vectors",
            fix="use it with embed, search, evaluate or serve, or name another model",
        )
    embedder = embedder_of(
        encoder, recipe, source, pooling=pooling, normalize=normalize, layers=layers, max_length=max_length,
        dimensions=dimensions,
    )  # fmt: skip
    return embedder if prompt is None else embedder.varied(prompt=prompt)


def embedder_of(
    encoder: RowEncoder,
    recipe: SentenceRecipe | None,
    source: Path | str,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    layers: str = "last",
    max_length: int | None = None,
    dimensions: int | None = None,
) -> Embedder:
    """The embedder of an encoder that reads texts as the recipe of its source says, see `load_embedder`."""
    said = recipe or SentenceRecipe(encoder=Path(source))
    limit = encoder.model.max_tokens
    if said.pooling == "cls" and pooling is None and encoder.reads_last:
        raise CheckpointError(
            expected="a pooling over all tokens of a left-to-right model",
            found=f"the state of the first token in '{source}', which has seen no other",
            fix="choose --pooling mean or max",
        )
    pooling = said.pooling if pooling is None else pooling
    width = said.layers[-1].width if said.layers else encoder.text_width(encoder.choice(layers), pooling)
    cut = None if said.dimensions is None else min(said.dimensions, width)
    return Embedder(
        encoder,
        pooling=pooling,
        normalize=said.normalize if normalize is None else normalize,
        layers=layers,
        max_length=min(said.max_length or limit, limit) if max_length is None else max_length,
        prompt=said.prompt,
        special_tokens=recipe is not None,
        prompts=said.prompts,
        pools_prompt=said.pools_prompt,
        dimensions=cut if dimensions is None else dimensions,
        cuts_last=cut is not None and dimensions is None and normalize is None,
        similarity=said.similarity,
        further=said.layers,
    )


def early_encoder(built: Built, load: Callable[[], RowEncoder]) -> RowEncoder:
    """The encoder of a graph, which gives way to the one that `load` returns; see `Early`."""
    first: RowEncoder = OnnxEngine(built.folder, built=built.graph).encoder(built.folder.tokenizer)
    return EarlyEncoder(Early(first, load, built.later), lambda either: either)


def load_token_features(
    source: Path | str,
    *,
    layers: str = "last",
    unit: str = "first",
    max_length: int | None = None,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> TokenFeatures:
    """The features of a model folder, one of sentence-transformers, a Google checkpoint, a run or a hub id.

    A sentence-transformers folder says where its encoder is and whether texts are lower-cased.
    """
    encoder, _ = load_encoder(source, pooled=False, device=device, precision=precision, products=products)
    return TokenFeatures(encoder, layers=layers, unit=unit, max_length=max_length)


def late_folder(source: Path | str) -> Path | None:
    """The folder of a model with late interaction, or in a run, an address or behind an id; None for other models."""
    path = resolve(source) if is_hub_id(source) or address_of(source) is not None else Path(source)
    return next((folder for folder in (path, path / "model") if is_late_interaction(folder)), None)


def load_token_embedder(
    folder: Path, *, device: str = "auto", precision: str = "fp32", products: str = "auto"
) -> TokenEmbedder:
    """The token embedder of a folder with late interaction; see `late_folder`."""
    recipe = read_late_recipe(folder)
    encoder, _ = load_encoder(folder, pooled=False, device=device, precision=precision, products=products)
    return TokenEmbedder(encoder, recipe)
