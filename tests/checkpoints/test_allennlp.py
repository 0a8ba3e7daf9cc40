"""The published layout of ELMo: against an oracle of its own, as a folder, and bad input.

The tests of files need h5py, which is optional; those of the numbers do not.
"""

import copy
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.app.library.formats import convert
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError, VocabularyError
from bertsmith.models.checkpoints import allennlp
from bertsmith.models.checkpoints.allennlp import config_of, read_allennlp, tensors_of
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import kind_of, load_any
from bertsmith.models.encoders.elmo import ElmoConfig, ElmoModel
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.layer_mix import WeightedMix
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from oracles.elmo_files_oracle import layers_of, mixed, word_vector

WORDS = ["the", "Stick", "café", "hang", "out", "x" * 60, "."]
SENTENCES = (["the", "Stick", "hang", "out", "."], ["x" * 60], ["café", "the", "."])
VOCABULARY = Vocabulary([*SPECIAL_PIECES, *WORDS])
FILTERS = [[1, 1], [2, 1], [3, 2], [4, 4], [5, 8], [6, 16], [7, 32]]


def options(**changes: object) -> dict[str, Any]:
    """A small model with clips that are reached; `changes` by the path of a value, with two underscores."""
    result: dict[str, Any] = {
        "lstm": {
            "use_skip_connections": True,
            "projection_dim": 4,
            "cell_clip": 0.6,
            "proj_clip": 0.5,
            "dim": 6,
            "n_layers": 2,
        },
        "char_cnn": {
            "activation": "relu",
            "filters": copy.deepcopy(FILTERS),
            "n_highway": 1,
            "embedding": {"dim": 16},
            "n_characters": 262,
            "max_characters_per_token": 50,
        },
    }
    for path, value in changes.items():
        section, *inner, last = path.split("__")
        part = result[section]
        for name in inner:
            part = part[name]
        part[last] = value
    return result


def arrays_of(options: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lstm, characters = options["lstm"], options["char_cnn"]
    total, half, cells = sum(count for _, count in characters["filters"]), lstm["projection_dim"], lstm["dim"]
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, 16)}
    for number, (width, count) in enumerate(characters["filters"]):
        shapes |= {f"CNN/W_cnn_{number}": (1, width, 16, count), f"CNN/b_cnn_{number}": (count,)}
    for number in range(characters["n_highway"]):
        for name in ("carry", "transform"):
            shapes |= {f"CNN_high_{number}/W_{name}": (total, total), f"CNN_high_{number}/b_{name}": (total,)}
    shapes |= {"CNN_proj/W_proj": (total, half), "CNN_proj/b_proj": (half,)}
    for way in range(2):
        for layer in range(lstm["n_layers"]):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            shapes |= {f"{cell}/W_0": (2 * half, 4 * cells), f"{cell}/B": (4 * cells,), f"{cell}/W_P_0": (cells, half)}
    return {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def model_of(options: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ElmoModel:
    encoder = ElmoModel(config_of(options, len(VOCABULARY)), seed=1).double()
    tensors = {
        name.removeprefix("bert."): torch.tensor(tensor) for name, tensor in tensors_of(arrays, encoder.config).items()
    }
    missing, unexpected = encoder.load_state_dict(tensors, strict=False)
    assert (set(missing), unexpected) == ({"pooler.weight", "pooler.bias"}, [])
    encoder.read_vocabulary(VOCABULARY)
    return encoder.eval()


def batch_of(sentences: tuple[list[str], ...]) -> Batch:
    rows = [[VOCABULARY.index[word] for word in ("[CLS]", *sentence, "[SEP]")] for sentence in sentences]
    return Batch.from_rows(rows)


@torch.no_grad()
def layers(encoder: ElmoModel) -> list[np.ndarray]:
    trace = Trace()
    encoder(batch_of(SENTENCES), trace=trace)
    return [state.numpy() for state in trace.hidden_states]


@pytest.mark.parametrize("highways", [1, 2])
def test_all_layers_equal_those_of_the_published_equations(highways):
    chosen = options(char_cnn__n_highway=highways)
    arrays = arrays_of(chosen)
    encoder = model_of(chosen, arrays)
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    expected = [layers_of(sentence, chosen, exact) for sentence in SENTENCES]
    result = layers(encoder)
    assert len(result) == 3
    for number, states in enumerate(result):
        np.testing.assert_allclose(states, np.concatenate([states[number] for states in expected]), atol=1e-6)
    first = np.concatenate([states[1] for states in expected])
    assert np.isclose(np.abs(first), 0.5).any(), "the clip is reached"
    assert encoder.config.num_parameters() == sum(parameter.numel() for parameter in encoder.parameters())


def test_the_mix_of_the_layers_is_equation_1():
    chosen, mix = options(), WeightedMix(3).double()
    arrays = arrays_of(chosen)
    states = torch.stack([torch.from_numpy(layer) for layer in layers(model_of(chosen, arrays))], dim=1)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.3, -1.0, 0.5]))
        mix.gamma.fill_(1.7)
        result = mix(states).numpy()
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    expected = [mixed(layers_of(sentence, chosen, exact), [0.3, -1.0, 0.5], 1.7) for sentence in SENTENCES]
    np.testing.assert_allclose(result, np.concatenate(expected), atol=1e-6)


def test_a_word_that_the_model_never_saw_has_the_vector_of_its_spelling():
    chosen = options()
    arrays = arrays_of(chosen)
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    table = model_of(chosen, arrays).word_table.numpy()
    for word in ("café", "x" * 60):
        vector = word_vector(word, chosen, exact)
        np.testing.assert_allclose(table[VOCABULARY.index[word]], np.concatenate([vector, vector]), atol=1e-6)


def test_the_options_of_the_released_models_give_their_shapes():
    released = {
        (1024, 128, 1): 13_600_000,
        (2048, 256, 1): 28_000_000,
        (4096, 512, 2): 93_600_000,
    }
    for (cells, half, highways), published in released.items():
        chosen = options(
            lstm__dim=cells,
            lstm__projection_dim=half,
            lstm__cell_clip=3,
            lstm__proj_clip=3,
            char_cnn__n_highway=highways,
            char_cnn__filters=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        )
        config = config_of(chosen, 5)
        assert (config.hidden_size, config.filters, config.cell_clip) == (2 * half, 2048, 3.0)
        second_biases = 4 * 4 * cells
        assert config.num_parameters(pooler=False) - second_biases == pytest.approx(published, rel=5e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm__use_skip_connections": False}, "lstm.use_skip_connections True .*found False"),
        ({"char_cnn__activation": "tanh"}, "char_cnn.activation relu .*found 'tanh'"),
        ({"char_cnn__filters": [[1, 4], [2, 8]]}, r"char_cnn.filters .*found \[\(1, 4\), \(2, 8\)\]"),
        ({"char_cnn__filters": "many"}, "char_cnn.filters"),
        ({"char_cnn__max_characters_per_token": 20}, "max_characters_per_token 50"),
        ({"char_cnn__n_characters": 300}, "n_characters 261 or 262"),
        ({"char_cnn__embedding__dim": 4}, "char_cnn.embedding.dim 16"),
        ({"char_cnn__n_highway": 3}, "num_highways from 1 to 2"),
        ({"lstm__dim": "wide"}, "dim to be a whole number above 0 .*found 'wide'"),
        ({"lstm__proj_clip": "none"}, "proj_clip to be a number"),
        ({"lstm__n_layers": 0}, "n_layers to be a whole number above 0"),
    ],
)
def test_options_of_another_model_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        config_of(options(**changes), 5)


def test_options_without_a_section_are_refused():
    for content in ([], {"lstm": {}}, {"lstm": 3}):
        with pytest.raises(ConfigError, match=r"an object (lstm|char_cnn)"):
            config_of(content, 5)


def test_no_limit_is_no_limit():
    assert config_of(options(lstm__cell_clip=None, lstm__proj_clip=None), 5).cell_clip == 0
    assert isinstance(config_of(options(), 5), ElmoConfig)


def folder_of(folder: Path, lines: list[str] | None = None) -> Path:
    folder.mkdir()
    (folder / "elmo_options.json").write_text(json.dumps(options()), encoding="utf-8")
    (folder / "elmo_weights.hdf5").write_bytes(b"not HDF5")
    words = ["<S>", "</S>", "<UNK>", *WORDS, "##s"] if lines is None else lines
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return folder


def test_without_h5py_the_error_says_what_to_install(tmp_path, monkeypatch):
    folder = folder_of(tmp_path / "elmo")
    assert kind_of(folder) == "allennlp"
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"the package h5py.*pip install 'bertsmith\[hdf5\]'"):
        load_any(folder)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["the", "stick"], "<S>, </S>, <UNK> as the first lines"),
        (["<S>", "</S>", "<UNK>", "the", "the"], "every piece once"),
        (["<S>", "</S>", "<UNK>", "the", "", "a"], "an empty line"),
    ],
)
def test_a_list_of_words_that_is_none_is_refused(tmp_path, lines, message):
    with pytest.raises(VocabularyError, match=message):
        read_allennlp(folder_of(tmp_path / "elmo", lines))


def test_files_that_are_missing_or_ambiguous_are_named(tmp_path):
    folder = folder_of(tmp_path / "elmo")
    (folder / "other.hdf5").write_bytes(b"")
    with pytest.raises(InputError, match=r"one \*\.hdf5 .*found elmo_weights.hdf5, other.hdf5"):
        read_allennlp(folder)
    (folder / "other.hdf5").unlink()
    (folder / "vocab.txt").write_bytes(b"<S>\n</S>\n<UNK>\n\xff\n")
    with pytest.raises(VocabularyError, match="UTF-8"):
        read_allennlp(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"a vocab.txt in .* comes from its spelling"):
        read_allennlp(folder)


def with_weights(folder: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "elmo_weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)
    return folder


def test_a_folder_is_read_and_converted_with_the_same_numbers(tmp_path):
    arrays = arrays_of(options())
    folder = with_weights(folder_of(tmp_path / "elmo"), arrays)
    read = load_any(folder)
    assert read.tokenizer.vocabulary == VOCABULARY
    assert read.report.notes == ("1 word of vocab.txt with ## at the beginning left out",)
    assert set(read.report.mapped) == set(arrays)
    ids = read.tokenizer.encode("the Stick sticks .")
    assert [VOCABULARY.pieces[id] for id in ids] == ["the", "Stick", "[UNK]", "."]
    converted = convert(folder, tmp_path / "model", to="huggingface")
    assert any("nothing was run" in line for line in converted.lines())
    encoder = load_pretrained(load_any(tmp_path / "model")).model.encoder.double().eval()
    for states, expected in zip(layers(encoder), layers(model_of(options(), arrays)), strict=True):
        np.testing.assert_array_equal(states, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"CNN_proj/b_proj": None}, "no CNN_proj/b_proj"),
        ({"char_embed": np.zeros((262, 16), np.float32)}, r"char_embed is \[262, 16\] instead of \[261, 16\]"),
        ({"softmax/W": np.zeros((3, 4), np.float32)}, "unknown softmax/W"),
        ({"CNN_proj/b_proj": np.zeros(4, np.int32)}, "floating-point weights"),
        ({"CNN_proj/b_proj": np.full(4, np.nan, np.float32)}, "finite weights"),
    ],
)
def test_weights_of_another_model_are_refused(tmp_path, change, message):
    arrays = {name: array for name, array in {**arrays_of(options()), **change}.items() if array is not None}
    folder = with_weights(folder_of(tmp_path / "elmo"), arrays)
    with pytest.raises(CheckpointError, match=message):
        read_allennlp(folder)
    if "softmax/W" in change:
        assert read_allennlp(folder, allow_unknown=True).report.unknown == ("softmax/W",)


def test_a_damaged_file_is_an_error_in_one_line(tmp_path):
    pytest.importorskip("h5py")
    folder = folder_of(tmp_path / "elmo")
    with pytest.raises(InputError, match="an HDF5 file at"):
        read_allennlp(folder)
    with_weights(folder, arrays_of(options()))
    path = folder / "elmo_weights.hdf5"
    whole = path.read_bytes()
    for size in (8, 900, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(BertsmithError):
            read_allennlp(folder)


def test_names_and_shapes_cover_the_same_arrays():
    config = config_of(options(), 5)
    assert allennlp._shapes(config) == {name: array.shape for name, array in arrays_of(options()).items()}
