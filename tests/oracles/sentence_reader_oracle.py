"""The sentence readers one pair at a time, with torch's own LSTM."""

import torch
from torch import Tensor, nn


def vector_of(texts: list[Tensor], weights: dict[str, Tensor], cells: int, *, attends: bool) -> Tensor:
    """The vector [512] of one or two texts, given as hidden states [tokens, n, D]; without dropout."""
    read = [states_of(states, weights, cells) for states in texts]
    if attends:
        first, other = read
        result = []
        for here, there in ((first, other), (other, first)):
            seen = [
                sum(w * state for w, state in zip((there @ token).softmax(0), there, strict=False)) for token in here
            ]
            result.append(_both(torch.cat([here, torch.stack(seen)], dim=1), weights, "third", cells))
        read = result
    pooled = [states.max(dim=0).values for states in read]
    if len(pooled) == 2:
        u, v = pooled
        pooled = [u, v, (u - v).abs(), u * v]
    return torch.tanh(weights["hidden.weight"] @ torch.cat(pooled) + weights["hidden.bias"])


def states_of(states: Tensor, weights: dict[str, Tensor], cells: int, *, normalized: bool = False) -> Tensor:
    """The states [tokens, 2C] of one text, given as hidden states [tokens, n, D]; without dropout."""
    if normalized:
        mean, variance = states.mean(dim=2, keepdim=True), states.var(dim=2, unbiased=False, keepdim=True)
        states = (states - mean) / (variance + 1e-5).sqrt()
    if "mix.scores" in weights:
        shares = weights["mix.scores"].softmax(0)
        x = weights["mix.gamma"] * sum(share * states[:, number] for number, share in enumerate(shares))
    else:
        x = torch.cat([states[:, number] for number in range(states.shape[1])], dim=1)
    return _both(_both(x, weights, "first", cells), weights, "second", cells)


def _both(x: Tensor, weights: dict[str, Tensor], layer: str, cells: int) -> Tensor:
    lstm = nn.LSTM(x.shape[1], cells, bidirectional=True).double()
    state = {}
    for ours, end in (("right", ""), ("left", "_reverse")):
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            state[name + end] = weights[f"{layer}.{ours}.{name}"]
    lstm.load_state_dict(state)
    return lstm(x)[0]
