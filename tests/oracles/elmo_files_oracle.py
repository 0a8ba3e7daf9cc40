"""ELMo from the published layout, one word and one time step after the other.

It follows the equations of Peters et al. (2018) and the released TensorFlow code, and knows only `options.json` and the
arrays of `weights.hdf5` under their stored names: matrices are [in, out], the gates of an LSTM are input, candidate,
forget and output, and 1.0 is added to the forget gate.
"""

import numpy as np

Arrays = dict[str, np.ndarray]


def characters_of(word: str) -> list[int]:
    """The 50 characters of a word; `<S>` and `</S>` are words of one character of their own."""
    inside = {"<S>": [256], "</S>": [257]}.get(word, [*word.encode("utf-8")[:48]])
    ids = [258, *inside, 259]
    return ids + [260] * (50 - len(ids))


def word_vector(word: str, options: dict, arrays: Arrays) -> np.ndarray:
    """The vector of a word, [projection]."""
    letters = arrays["char_embed"][characters_of(word)]  # [50, 16]
    result = []
    for number, (width, filters) in enumerate(options["char_cnn"]["filters"]):
        kernel, bias = arrays[f"CNN/W_cnn_{number}"], arrays[f"CNN/b_cnn_{number}"]  # [1, width, 16, filters]
        best = np.full(filters, -np.inf)
        for position in range(50 - width + 1):
            answer = bias.copy()
            for offset in range(width):
                for dimension in range(16):
                    answer = answer + letters[position + offset, dimension] * kernel[0, offset, dimension]
            best = np.maximum(best, answer)
        result.append(np.maximum(best, 0))
    x = np.concatenate(result)
    for number in range(options["char_cnn"]["n_highway"]):
        name = f"CNN_high_{number}"
        carry = sigmoid(x @ arrays[f"{name}/W_carry"] + arrays[f"{name}/b_carry"])
        changed = np.maximum(x @ arrays[f"{name}/W_transform"] + arrays[f"{name}/b_transform"], 0)
        x = carry * changed + (1 - carry) * x
    return x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"]


def layers_of(words: list[str], options: dict, arrays: Arrays) -> list[np.ndarray]:
    """The layers [words + 2, 2 * projection] of a sentence between `<S>` and `</S>`."""
    vectors = np.stack([word_vector(word, options, arrays) for word in ["<S>", *words, "</S>"]])
    layers = [np.concatenate([vectors, vectors], axis=1)]
    right, left = vectors, vectors[::-1]
    for number in range(options["lstm"]["n_layers"]):
        outputs = [
            _read(x, f"RNN_{way}/RNN/MultiRNNCell/Cell{number}/LSTMCell", options, arrays)
            for way, x in enumerate((right, left))
        ]
        if number:  # the residual connection
            outputs = [output + x for output, x in zip(outputs, (right, left), strict=True)]
        right, left = outputs
        layers.append(np.concatenate([right, left[::-1]], axis=1))
    return layers


def mixed(layers: list[np.ndarray], scores: list[float], gamma: float) -> np.ndarray:
    """Equation 1: gamma * sum over j of softmax(scores)_j h_j."""
    weights = np.exp(scores) / np.exp(scores).sum()
    return gamma * sum(weight * layer for weight, layer in zip(weights, layers, strict=True))


def _read(x: np.ndarray, name: str, options: dict, arrays: Arrays) -> np.ndarray:
    """The projected outputs of TensorFlow's `LSTMCell`, which reads the rows of `x` in order."""
    cell_clip, projection_clip = options["lstm"]["cell_clip"], options["lstm"]["proj_clip"]
    hidden = np.zeros(options["lstm"]["projection_dim"])
    cell = np.zeros(options["lstm"]["dim"])
    result = []
    for row in x:
        gates = np.concatenate([row, hidden]) @ arrays[f"{name}/W_0"] + arrays[f"{name}/B"]
        entry, candidate, forget, output = np.split(gates, 4)
        cell = sigmoid(forget + 1.0) * cell + sigmoid(entry) * np.tanh(candidate)
        cell = np.clip(cell, -cell_clip, cell_clip)
        hidden = (sigmoid(output) * np.tanh(cell)) @ arrays[f"{name}/W_P_0"]
        hidden = np.clip(hidden, -projection_clip, projection_clip)
        result.append(hidden)
    return np.stack(result)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
