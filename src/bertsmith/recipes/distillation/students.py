"""The initial model of a student: layers of its teacher, a new model of some size, a BiLSTM, or another folder.

All of them have the vocabulary of the teacher, because its logits belong to its pieces. Layers are counted from 1, as
in the papers; 0 is the output of the embeddings.

Source: Sanh et al. (2019), "DistilBERT", section 2; Jiao et al. (2020), "TinyBERT", section 4.1; Adhikari et al.
(2019), "DocBERT", section 3.2.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bertsmith.base.core.errors import ConfigError, VocabularyError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require, require_other
from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.encoders.albert import AlbertConfig
from bertsmith.models.encoders.bilstm import BiLstmConfig
from bertsmith.models.encoders.distilbert import DistilBertConfig
from bertsmith.models.heads.decoder import spread as spread_from_zero
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig, EncoderConfig
from bertsmith.models.parts.part_names import part_of

LAYERS, BILSTM, N_GRAMS = "layers", "bilstm", "n-grams"
# Layers, width, heads and feed-forward width of a new student besides the named sizes.
SIZES: Mapping[str, tuple[int, int, int, int]] = {"tinybert": (4, 312, 12, 1200), "tinybert6": (6, 768, 12, 3072)}
_SHAPE = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,4})")
_HEAD_WIDTH = 26  # of a student given as LAYERSxWIDTH, at least: that of TinyBERT
_WORDS, _SEGMENTS, _POSITIONS = (f"bert.embeddings.{name}.weight" for name in ("word", "segment", "position"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Student:
    """What a student starts from."""

    folder: ModelFolder  # the model, as read or made; of a new one, path is that of the teacher
    about: str
    layers: tuple[int, ...] = ()  # the layers of the teacher that it has, from 1; empty if it has none of them
    is_new: bool = False  # whether its layers are randomly initialized

    def record(self) -> dict[str, Any]:
        """Plain values for settings.json."""
        return {"student": self.about, "layers": list(self.layers)}


def student_of(
    teacher: ModelFolder,
    name: str = LAYERS,
    layers: str | None = None,
    *,
    seed: int = 1,
    spread: bool = False,
    same_heads: bool = False,
) -> Student:
    """The start of a student.

    Args:
        name: "layers" (of the teacher), "bilstm", a named size, LAYERSxWIDTH, or a model folder or hub id.
        layers: with "layers": how many or which; with `spread` evenly spread, see `chosen_layers`.
        same_heads: whether attention scores are compared, head by head. A new model then has as many heads as its
            teacher, where its width allows it.
    """
    require_other(
        layers is None or name == LAYERS, "--layers", "a student that has layers of its teacher, --student layers"
    )
    if name == LAYERS:
        _require_layers(teacher)
        chosen = chosen_layers(layers, teacher.config.num_hidden_layers, spread=spread)
        return Student(folder=with_layers(teacher, chosen), about=_layers_in_words(chosen), layers=chosen)
    if name == BILSTM:
        return Student(folder=_bilstm(teacher, seed), about="BiLSTM with the word vectors of the teacher", is_new=True)
    shape = _shape_of(name)
    if shape is not None:
        about = f"new model of {counted(shape[0], 'layer')}, width {shape[1]}"
        heads = teacher.config.num_attention_heads
        if same_heads and heads != shape[2] and _fits(heads, shape[1], teacher.config):
            about += f", with the {heads} attention heads of the teacher instead of {shape[2]}"
            shape = (*shape[:2], heads, shape[3])
        return Student(folder=_new(teacher, shape, seed), about=about, is_new=True)
    folder = load_any(name)
    require_same_vocabulary(teacher, folder)
    return Student(folder=folder, about=f"'{folder.name}'")


def with_layers(teacher: ModelFolder, layers: tuple[int, ...]) -> ModelFolder:
    """The teacher with some of its layers, counted from 1; embeddings and pooler stay, heads of tasks go.

    If all layers share their parameters, these stay as they are, and are used less often. So does what only one layer
    has, which belongs to its place: the convolution next to the first layer of some DeBERTas.
    """
    _require_layers(teacher)
    config = teacher.config
    shares_all = config.num_distinct_layers == 1
    are_lowest = layers == tuple(range(1, len(layers) + 1))
    require(
        shares_all or config.num_distinct_layers == config.num_hidden_layers,
        expected="a teacher whose layers have parameters of their own, or share all of them, for --student layers",
        found=f"{config.num_distinct_layers} sets of parameters in {config.num_hidden_layers} layers",
        fix="use --student bilstm or LAYERSxWIDTH",
    )
    require(
        config.has_equal_layers or are_lowest,
        expected=f"the lowest layers of {config.display_name}, whose layers differ in what they attend to",
        found=_layers_in_words(layers),
        fix=f"use --layers {','.join(map(str, range(1, len(layers) + 1)))}",
    )
    tensors: dict[str, Tensor] = {}
    layers_with = Counter(name.partition("bert.layers.")[2].partition(".")[2] for name in teacher.tensors)
    for name, tensor in teacher.tensors.items():
        stack, _, rest = name.partition("bert.layers.")
        if not stack and rest:
            number, _, inner = rest.partition(".")
            if shares_all or layers_with[inner] == 1:
                tensors[name] = tensor
            elif int(number) + 1 in layers:
                tensors[f"bert.layers.{layers.index(int(number) + 1)}.{inner}"] = tensor
        elif part_of(name) in (None, "pooler", "mlm"):
            tensors[name] = tensor
    config = dataclasses.replace(config, num_hidden_layers=len(layers))
    metadata = ModelMetadata(steps=teacher.metadata.steps, tokens=teacher.metadata.tokens)
    return dataclasses.replace(teacher, config=config, tensors=tensors, metadata=metadata)


def as_distilbert(folder: ModelFolder) -> ModelFolder:
    """A BERT as a DistilBERT: without segments, pooler and next-sentence head.

    The vector of the first segment is added to those of all positions, so the embeddings of single texts stay the same.
    """
    config = folder.config
    require(
        isinstance(config, BertConfig | DistilBertConfig) and not config.is_causal,
        expected="a bidirectional BERT as the teacher of a DistilBERT",
        found=config.display_name + (" that reads left to right" if config.is_causal else ""),
        fix="use --method tinybert with a --student of the teacher's layers",
    )
    tensors = {name: tensor for name, tensor in folder.tensors.items() if part_of(name) in (None, "mlm")}
    segments = tensors.pop(_SEGMENTS, None)
    if segments is not None:
        tensors[_POSITIONS] = tensors[_POSITIONS] + segments[:1]
    fields = {field.name for field in dataclasses.fields(DistilBertConfig)} - DistilBertConfig.omitted
    shape = {name: getattr(config, name) for name in fields if hasattr(config, name)}
    return dataclasses.replace(folder, config=DistilBertConfig(**shape), tensors=tensors)


def require_same_vocabulary(teacher: ModelFolder, student: ModelFolder) -> None:
    """Checks that a student has the pieces and the text rules of its teacher."""
    theirs, ours = teacher.require_tokenizer(), student.require_tokenizer()
    if theirs.vocabulary.digest == ours.vocabulary.digest and theirs.settings == ours.settings:
        return
    same = theirs.vocabulary.digest == ours.vocabulary.digest
    raise VocabularyError(
        expected=f"a student with the vocabulary and the text rules of its teacher '{teacher.name}'",
        found=f"other {'text rules' if same else 'pieces'} in '{student.name}' ({len(ours.vocabulary):,} pieces, "
        f"the teacher has {len(theirs.vocabulary):,})",
        fix="use a student made from the teacher (--student layers, bilstm or a size), or another teacher",
    )


def _shape_of(name: str) -> tuple[int, int, int, int] | None:
    """Layers, width, heads and feed-forward width that a name stands for; None if it is not a size."""
    shape = _SHAPE.fullmatch(name)
    if shape is None:
        return SIZES.get(name) or BertConfig.sizes.get(name)
    layers, width = int(shape[1]), int(shape[2])
    heads = [count for count in range(1, 13) if width % count == 0 and width // count >= _HEAD_WIDTH]
    return (layers, width, max(heads, default=1), SIZES["tinybert"][3] if width == SIZES["tinybert"][1] else 4 * width)


def _fits(heads: int, width: int, config: EncoderConfig) -> bool:
    """Whether a width can be split among the heads; rotary positions need heads of an even width."""
    return width % heads == 0 and (config.rotary_base_of(0) is None or width // heads % 2 == 0)


def _new(teacher: ModelFolder, shape: tuple[int, int, int, int], seed: int) -> ModelFolder:
    """A randomly initialized model of the teacher's architecture."""
    _require_layers(teacher)
    layers, width, heads, inner = shape
    groups: dict[str, Any] = {}
    if isinstance(teacher.config, AlbertConfig):
        groups = {"num_hidden_groups": min(layers, teacher.config.num_hidden_groups)}
    config = dataclasses.replace(
        teacher.config,
        **groups,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    return _untrained(teacher, config, seed, {})


def _bilstm(teacher: ModelFolder, seed: int) -> ModelFolder:
    """A BiLSTM whose word vectors are those of the teacher, with a standard deviation of 1."""
    words = teacher.tensors.get(_WORDS)
    if words is None or words.shape[1] % 2:
        needed = f"a teacher with word vectors of an even width, not {teacher.config.display_name}"
        raise ConfigError.needs("--student bilstm", needed, "use another --student")
    config = BiLstmConfig(vocab_size=words.shape[0], hidden_size=words.shape[1], num_hidden_layers=1)
    vectors = words.float()
    return _untrained(teacher, config, seed, {_WORDS: vectors / vectors.std()})


def _untrained(teacher: ModelFolder, config: EncoderConfig, seed: int, taken: Mapping[str, Tensor]) -> ModelFolder:
    """A new model with the tokenizer of the teacher, and some tensors that are not drawn at random."""
    drawn = untrained(config, seed, teacher.require_tokenizer().vocabulary).state_dict()
    tensors = {name: tensor for name, tensor in drawn.items() if part_of(name) in (None, "mlm")}
    # Zero tokens: a model that has read nothing, for the recipe of fine-tuning.
    metadata = ModelMetadata(task="pretraining", steps=0, tokens=0)
    return dataclasses.replace(teacher, config=config, tensors={**tensors, **taken}, metadata=metadata)


def _require_layers(teacher: ModelFolder) -> None:
    require(
        teacher.config.has_attention,
        expected="a teacher with Transformer layers",
        found=teacher.config.display_name,
        fix="use --student bilstm or n-grams, or another teacher",
    )


def _layers_in_words(layers: tuple[int, ...]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))} of the teacher"


def spread_layers(count: int, of: int) -> tuple[int, ...]:
    """`count` of the layers 1 to `of`, evenly spread, the first and the last among them.

    Of 12 layers, these are the six of DistilBERT.

    Source: the file `extract.py` of the released code of DistilBERT.

    >>> spread_layers(6, 12), spread_layers(3, 6), spread_layers(1, 6)
    ((1, 3, 5, 8, 10, 12), (1, 3, 6), (1,))
    """
    return tuple(number + 1 for number in spread_from_zero(count, of))


def chosen_layers(text: str | None, of: int, *, spread: bool) -> tuple[int, ...]:
    """The layers that an option names: a number of layers, or layers of the teacher with commas.

    Args:
        spread: a number of layers are evenly spread, as in DistilBERT; otherwise the lowest ones, whose states are
            those of the teacher, so that a short training has less to repair.

    >>> chosen_layers(None, 12, spread=True), chosen_layers("4", 12, spread=False)
    ((1, 3, 5, 8, 10, 12), (1, 2, 3, 4))
    """
    if text is None:
        text = str(max(1, of // 2))
    parts = [part.strip() for part in str(text).split(",")]
    listed = [int(part) for part in parts if part.isascii() and part.isdigit()]
    is_list = len(listed) == len(parts)
    if is_list and len(listed) == 1:
        if not 1 <= listed[0] <= of:
            raise ConfigError.must_be("--layers", f"1 to {of} layers of the teacher", listed[0])
        return spread_layers(listed[0], of) if spread else tuple(range(1, listed[0] + 1))
    if not is_list or not all(1 <= layer <= of for layer in listed) or listed != sorted(set(listed)):
        raise ConfigError.must_be("layers", f"a number, or ascending ones from 1 to {of} with commas", text)
    return tuple(listed)
