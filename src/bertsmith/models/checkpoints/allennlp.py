"""ELMo as it was published: `options.json` and `weights.hdf5`, the layout of bilm-tf and AllenNLP.

A model of this layout reads whole words by their characters, so it has no vocabulary of its own. Here a text becomes
ids of a vocabulary, so the folder needs a `vocab.txt`: the words that will be read, one a line, after `<S>`, `</S>` and
`<UNK>`, as in the list that the model was trained with, or pieces with the special ones of BERT. Any word may be in it,
because its vector comes from its spelling.

What is stored differently: matrices are [in, out]; the matrices of an LSTM for its input and for its hidden state are
one, in this order; the gates are input, cell, forget, output; there is one bias, and 1 is added to that of the forget
gate. The softmax is not published with the weights, so there is no head for pieces.

Source: `dump_weights` and `BidirectionalLanguageModelGraph` of bilm-tf (allenai/bilm-tf, bilm/training.py and
bilm/model.py); `ElmoLstm.load_weights` and `_ElmoCharacterEncoder` of AllenNLP.
"""

import dataclasses
import importlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError, VocabularyError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import read_json, regular_bytes
from bertsmith.models.checkpoints.model_folder import ModelFolder, require_numbers
from bertsmith.models.checkpoints.plan import plan_loading
from bertsmith.models.encoders.character_cnn import (
    CHARACTER_WIDTH,
    CONVOLUTIONS,
    MOST_CHARACTERS,
    NUM_CHARACTERS,
    filters_of,
)
from bertsmith.models.encoders.elmo import NAMES, ElmoConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.parameter_names import Match
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

Array = npt.NDArray[Any]

INSTALL = "pip install 'bertsmith[hdf5]'"
_MARKERS = ("<S>", "</S>", "<UNK>")  # the first words of a list of bilm-tf
_DIRECTIONS = {"forward_lstm": "RNN_0", "backward_lstm": "RNN_1"}
_GATES = (0, 2, 1, 3)  # where the input, forget, cell and output gates are stored


def read_allennlp(folder: Path, *, rules: TextRules | None = None, allow_unknown: bool = False) -> ModelFolder:
    """The ELMo in a folder with one `*options.json`, one `*.hdf5` and a `vocab.txt`.

    Args:
        rules: text rules; by default text is not changed beyond its split into words.
    """
    options, weights = (_only(folder, pattern) for pattern in ("*options.json", "*.hdf5"))
    vocabulary, notes = _read_vocabulary(folder)
    config = config_of(read_json(options), len(vocabulary), f"'{options}'")
    source = f"'{weights}'"
    arrays, unknown = _read_hdf5(weights, _shapes(config), allow_unknown=allow_unknown)
    tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in tensors_of(arrays, config).items()}
    require_numbers(tensors, source)
    plan = plan_loading({name: tuple(tensor.shape) for name, tensor in tensors.items()}, Match, config, NAMES, source)
    mapped = {name: ", ".join(ours) for name, ours in _names(config).items()}
    report = dataclasses.replace(plan.report, mapped=mapped, unknown=unknown).with_notes(*notes)
    tokenizer = WordPieceTokenizer(vocabulary, rules or TextRules(lowercase=False))
    return ModelFolder(
        path=folder, config=config, tensors=tensors, tokenizer=tokenizer, metadata=ModelMetadata(), report=report
    )


def config_of(options: Any, pieces: int, source: str = "options.json") -> ElmoConfig:
    """The shape in an `options.json`, with a vocabulary of that many pieces."""
    lstm, characters = (_section(options, name, source) for name in ("lstm", "char_cnn"))
    filters = characters.get("filters")
    total = sum(pair[1] for pair in filters) if _are_filters(filters) else 0
    shape = {
        "dim": _number(lstm, "dim", source),
        "projection_dim": _number(lstm, "projection_dim", source),
        "n_layers": _number(lstm, "n_layers", source),
        "n_highway": _number(characters, "n_highway", source),
    }
    dimension = _number(_section(characters, "embedding", source), "dim", source)
    expected: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
        ("lstm.use_skip_connections", lstm.get("use_skip_connections"), (True,)),
        ("char_cnn.activation", characters.get("activation"), ("relu",)),
        ("char_cnn.embedding.dim", dimension, (CHARACTER_WIDTH,)),
        ("char_cnn.n_characters", characters.get("n_characters"), (NUM_CHARACTERS, NUM_CHARACTERS + 1)),
        ("char_cnn.max_characters_per_token", characters.get("max_characters_per_token"), (MOST_CHARACTERS,)),
        (
            "char_cnn.filters",
            [tuple(pair) for pair in filters] if _are_filters(filters) else filters,
            ([*filters_of(total)],),
        ),
    )
    for name, value, allowed in expected:
        require(
            value in allowed,
            expected=f"{name} {' or '.join(map(str, allowed))} in {source}, as in all released models",
            found=repr(value),
            fix="use a released model; others cannot be read",
        )
    return ElmoConfig(
        vocab_size=pieces,
        hidden_size=2 * shape["projection_dim"],
        num_hidden_layers=shape["n_layers"],
        intermediate_size=shape["dim"],
        num_filters=total,
        num_highways=shape["n_highway"],
        cell_clip=_clip(lstm, "cell_clip", source),
        projection_clip=_clip(lstm, "proj_clip", source),
    )


def tensors_of(arrays: Mapping[str, Array], config: ElmoConfig) -> dict[str, Array]:
    """The parameters by our name, from the arrays of a file by their stored name."""
    result: dict[str, Array] = {}
    for name, ours in _names(config).items():
        array = np.asarray(arrays[name], dtype=np.float32)
        kind = name.rsplit("/", 1)[1] if "/" in name else name
        if kind.startswith("W_cnn_"):
            result[ours[0]] = array[0].transpose(2, 1, 0)  # [1, width, E, filters] to [filters, E, width]
        elif kind == "W_0":
            inputs, hidden = np.split(_in_our_order(array.T), [config.hidden_size // 2], axis=1)
            result |= {ours[0]: inputs, ours[1]: hidden}
        elif kind == "B":
            bias = _in_our_order(array)
            bias[config.intermediate_size : 2 * config.intermediate_size] += 1  # TensorFlow's LSTMCell adds it
            result |= {ours[0]: bias, ours[1]: np.zeros_like(bias)}
        else:
            result[ours[0]] = array.T if array.ndim == 2 and kind != "char_embed" else array
    return result


def _in_our_order(array: Array) -> Array:
    """The rows of the four gates in the order input, forget, cell, output."""
    parts = np.split(array, 4)
    return np.concatenate([parts[gate] for gate in _GATES])


def _names(config: ElmoConfig) -> dict[str, tuple[str, ...]]:
    """Our names for each stored name."""
    ours = "bert.embeddings"
    result: dict[str, tuple[str, ...]] = {"char_embed": (f"{ours}.character.weight",)}
    for number, (width, _) in enumerate(CONVOLUTIONS):
        result[f"CNN/W_cnn_{number}"] = (f"{ours}.convolution{width}.weight",)
        result[f"CNN/b_cnn_{number}"] = (f"{ours}.convolution{width}.bias",)
    for number in range(config.num_highways):
        for stored, part in (("carry", "gate"), ("transform", "transform")):
            result[f"CNN_high_{number}/W_{stored}"] = (f"{ours}.highway{number}.{part}.weight",)
            result[f"CNN_high_{number}/b_{stored}"] = (f"{ours}.highway{number}.{part}.bias",)
    result |= {"CNN_proj/W_proj": (f"{ours}.projection.weight",), "CNN_proj/b_proj": (f"{ours}.projection.bias",)}
    for direction, stored in _DIRECTIONS.items():
        for layer in range(config.num_hidden_layers):
            lstm, cell = f"bert.layers.{layer}.{direction}", f"{stored}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            result[f"{cell}/W_0"] = (f"{lstm}.weight_ih_l0", f"{lstm}.weight_hh_l0")
            result[f"{cell}/B"] = (f"{lstm}.bias_ih_l0", f"{lstm}.bias_hh_l0")
            result[f"{cell}/W_P_0"] = (f"{lstm}.weight_hr_l0",)
    return result


def _shapes(config: ElmoConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every array, by its stored name."""
    half, cells, filters = config.hidden_size // 2, config.intermediate_size, config.filters
    counts = dict(filters_of(filters))
    of_kind: dict[str, tuple[int, ...]] = {
        "char_embed": (NUM_CHARACTERS, CHARACTER_WIDTH),
        "W_carry": (filters, filters),
        "W_transform": (filters, filters),
        "b_carry": (filters,),
        "b_transform": (filters,),
        "W_proj": (filters, half),
        "b_proj": (half,),
        "W_0": (2 * half, 4 * cells),
        "B": (4 * cells,),
        "W_P_0": (cells, half),
    }
    for number, (width, _) in enumerate(CONVOLUTIONS):
        of_kind[f"W_cnn_{number}"] = (1, width, CHARACTER_WIDTH, counts[width])
        of_kind[f"b_cnn_{number}"] = (counts[width],)
    return {name: of_kind[name.rsplit("/", 1)[-1]] for name in _names(config)}


def _read_hdf5(
    path: Path, expected: Mapping[str, tuple[int, ...]], *, allow_unknown: bool
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The expected arrays of a file, and the names of the others; shapes are checked before anything is read."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise ConfigError(
            expected=f"the package h5py, to read '{path}'",
            found="it is not installed",
            fix=f"install it: {INSTALL}",
        ) from None
    try:
        with h5py.File(path, "r") as file:
            stored: dict[str, Any] = {}
            file.visititems(lambda name, node: stored.update({name: node} if isinstance(node, h5py.Dataset) else {}))
            shapes = {name: tuple(node.shape or ()) for name, node in stored.items()}
            unknown = tuple(sorted(stored.keys() - expected.keys()))
            _require_arrays(shapes, expected, () if allow_unknown else unknown, path)
            wrong = [name for name in expected if stored[name].dtype.kind != "f"]
            if wrong:
                raise CheckpointError(
                    expected=f"floating-point weights in '{path}'", found=", ".join(wrong), fix="copy the file again"
                )
            return {name: np.asarray(stored[name][()]) for name in expected}, unknown
    except (OSError, RuntimeError) as error:  # what h5py raises for a damaged file
        raise InputError(
            expected=f"an HDF5 file at '{path}'", found=str(error).split("\n", 1)[0], fix="copy the file again"
        ) from None


def _require_arrays(
    shapes: Mapping[str, tuple[int, ...]],
    expected: Mapping[str, tuple[int, ...]],
    unknown: Iterable[str],
    path: Path,
) -> None:
    problems = [f"no {name}" for name in expected if name not in shapes]
    problems += [
        f"{name} is {list(shapes[name])} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    problems += [f"unknown {name}" for name in unknown]
    if problems:
        raise CheckpointError(
            expected=f"the {len(expected)} arrays of this ELMo in '{path}'",
            found="; ".join(problems),
            fix="check that options and weights belong together",
        )


def _read_vocabulary(folder: Path) -> tuple[Vocabulary, list[str]]:
    """The vocabulary of a folder, and a note on words that were left out."""
    path = folder / "vocab.txt"
    if not path.is_file():
        raise InputError(
            expected=f"a vocab.txt in '{folder}' with the words that will be read, one a line",
            found="none",
            fix="put the list of the model there, or any list that begins with <S>, </S> and <UNK>; the vector of a "
            "word comes from its spelling",
        )
    lines = [line.removesuffix("\r") for line in _text_of(path).split("\n")]
    lines = lines[:-1] if lines and not lines[-1] else lines
    if set(SPECIAL_PIECES) <= set(lines):
        return Vocabulary(lines, source=f"'{path}'"), []
    if tuple(lines[: len(_MARKERS)]) != _MARKERS:
        raise VocabularyError(
            expected=f"{', '.join(_MARKERS)} as the first lines of '{path}', or the special pieces of BERT",
            found=repr(lines[: len(_MARKERS)]),
            fix="put them in front of the words",
        )
    words = lines[len(_MARKERS) :]
    # A piece that begins with ## would be spelled as the continuation of a word.
    kept = [word for word in words if not word.startswith(CONTINUATION) or word == CONTINUATION]
    left_out = counted(len(words) - len(kept), "word")
    notes = [f"{left_out} of vocab.txt with ## at the beginning left out"] if kept != words else []
    return Vocabulary([*SPECIAL_PIECES, *kept], source=f"'{path}'"), notes


def _text_of(path: Path) -> str:
    try:
        return regular_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise VocabularyError(
            expected=f"UTF-8 in '{path}'",
            found=f"other bytes at {error.start}",
            fix="save it as UTF-8, one word a line",
        ) from None


def _only(folder: Path, pattern: str) -> Path:
    """The one file of a folder that matches."""
    paths = sorted(folder.glob(pattern))
    if len(paths) != 1:
        raise InputError(
            expected=f"one {pattern} in '{folder}'",
            found=", ".join(path.name for path in paths) or "none",
            fix="keep the files of one model in a folder",
        )
    return paths[0]


def _section(options: Any, name: str, source: str) -> Mapping[str, Any]:
    value = options.get(name) if isinstance(options, Mapping) else None
    if not isinstance(value, Mapping):
        raise ConfigError(
            expected=f"an object {name} in {source}", found=repr(value), fix="use the options of the model"
        )
    return value


def _number(section: Mapping[str, Any], name: str, source: str) -> int:
    value = section.get(name)
    require(
        isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6,
        expected=f"{name} to be a whole number above 0 in {source}",
        found=repr(value),
        fix="use the options of the model",
    )
    assert isinstance(value, int)
    return value


def _clip(section: Mapping[str, Any], name: str, source: str) -> float:
    """A limit; 0 if there is none."""
    value = section.get(name)
    require(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)),
        expected=f"{name} to be a number in {source}",
        found=repr(value),
        fix="use the options of the model",
    )
    return float(value or 0)


def _are_filters(value: Any) -> TypeGuard[list[list[int]]]:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(part) is int for part in pair) for pair in value
    )
