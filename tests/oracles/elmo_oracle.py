"""ELMo one number at a time: every character, filter, place and time step in a loop of its own."""

import numpy as np

PLACES = 50


def spelled(piece: str, *, first: str = "[CLS]", last: str = "[SEP]") -> list[int]:
    """The 50 characters of a WordPiece."""
    if piece in (first, last):
        ids = [258, 256 if piece == first else 257, 259]
    elif piece.startswith("##"):
        ids = [*piece[2:].encode()[:49], 259]
    else:
        ids = [258, *piece.encode()[:48], 259]
    return ids + [260] * (PLACES - len(ids))


def piece_vector(piece: str, weights: dict[str, np.ndarray]) -> np.ndarray:
    """The vector of a piece; `weights` are those of `CharacterCnn` by name."""
    characters = [weights["character.weight"][character] for character in spelled(piece)]
    result = []
    for width in range(1, 8):
        filters, bias = weights[f"convolution{width}.weight"], weights[f"convolution{width}.bias"]
        for number in range(len(filters)):
            answers = []
            for position in range(PLACES - width + 1):
                total = bias[number]
                for offset in range(width):
                    total += float(characters[position + offset] @ filters[number][:, offset])
                answers.append(max(total, 0.0))
            result.append(max(answers))
    x = np.array(result)
    for number in range(2):
        name = f"highway{number}"
        gate = sigmoid(weights[f"{name}.gate.weight"] @ x + weights[f"{name}.gate.bias"])
        changed = np.maximum(weights[f"{name}.transform.weight"] @ x + weights[f"{name}.transform.bias"], 0)
        x = gate * changed + (1 - gate) * x
    return weights["projection.weight"] @ x + weights["projection.bias"]


def hidden_states(
    pieces: list[str], weights: dict[str, np.ndarray], *, layers: int, cell_clip: float, projection_clip: float
) -> list[np.ndarray]:
    """The layers [tokens, D] of one row, from the vectors on; `weights` are those of `ElmoModel` by name."""
    embeddings = {name.removeprefix("embeddings."): value for name, value in weights.items()}
    vectors = np.stack([piece_vector(piece, embeddings) for piece in pieces])
    forward, backward = vectors, vectors
    result = [np.concatenate([forward, backward], axis=1)]
    for number in range(layers):
        limits = (cell_clip, projection_clip)
        right = one_direction(forward, f"layers.{number}.forward_lstm", weights, *limits)
        left = one_direction(backward[::-1], f"layers.{number}.backward_lstm", weights, *limits)[::-1]
        forward, backward = (right, left) if number == 0 else (right + forward, left + backward)
        result.append(np.concatenate([forward, backward], axis=1))
    return result


def one_direction(
    x: np.ndarray, name: str, weights: dict[str, np.ndarray], cell_clip: float, projection_clip: float
) -> np.ndarray:
    """The projected outputs of an LSTM that reads the rows of `x` in order."""
    from_input, recurrent = weights[f"{name}.weight_ih_l0"], weights[f"{name}.weight_hh_l0"]
    bias = weights[f"{name}.bias_ih_l0"] + weights[f"{name}.bias_hh_l0"]
    projection = weights[f"{name}.weight_hr_l0"]
    hidden, cells, outputs = np.zeros(len(projection)), np.zeros(projection.shape[1]), []
    for row in x:
        entry, forget, candidate, output = np.split(from_input @ row + recurrent @ hidden + bias, 4)
        cells = sigmoid(forget) * cells + sigmoid(entry) * np.tanh(candidate)
        cells = np.clip(cells, -cell_clip, cell_clip)
        hidden = np.clip(projection @ (sigmoid(output) * np.tanh(cells)), -projection_clip, projection_clip)
        outputs.append(hidden)
    return np.stack(outputs)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
