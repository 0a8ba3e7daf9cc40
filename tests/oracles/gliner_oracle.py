"""GLiNER's scores of the spans of one text, as its layers are described, one span after another.

Source: `UniEncoderSpanModel` and `UniEncoderTokenModel` of the package `gliner`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Spans = dict[tuple[int, int, str], float]  # probabilities by first and last character and label


def scores_of_spans(
    tensors: Mapping[str, Tensor], encoder: Any, tokenizer: Any, text: str, labels: Sequence[str], longest: int
) -> Spans:
    """The probability of each span for each label: of any length if words are scored, or of at most `longest` words."""
    words = [match.span() for match in re.finditer(r"\w+(?:[-_]\w+)*|\S", text)]
    prompt = [part for label in labels for part in ("<<ENT>>", label)] + ["<<SEP>>"]
    read = tokenizer([prompt + [text[slice(*word)] for word in words]], is_split_into_words=True, return_tensors="pt")
    hidden = encoder(input_ids=read["input_ids"], attention_mask=read["attention_mask"])[0][0]
    x = linear(tensors, "token_rep_layer.projection", hidden)
    places = read.word_ids(0)
    vectors = x[[places.index(len(prompt) + number) for number in range(len(words))]]
    of_labels = x[[places.index(2 * number) for number in range(len(labels))]]
    vectors = read_by_lstm(tensors, vectors)
    if "scorer.proj_token.weight" in tensors:
        return lowest_of_words(tensors, vectors, of_labels, words, labels)
    of_labels = two_layers(tensors, "prompt_rep_layer", of_labels)
    spans = "span_rep_layer.span_rep_layer"
    starts, ends = (two_layers(tensors, f"{spans}.project_{side}", vectors) for side in ("start", "end"))
    result: Spans = {}
    for first in range(len(words)):
        for last in range(first, min(first + longest, len(words))):
            both = torch.cat([starts[first], ends[last]]).relu()
            out = f"{spans}.out_project"
            vector = linear(tensors, out, both) if f"{out}.weight" in tensors else two_layers(tensors, out, both)
            for label, of_label in zip(labels, of_labels, strict=True):
                result[words[first][0], words[last][1], label] = float((vector @ of_label).sigmoid())
    return result


def lowest_of_words(
    tensors: Mapping[str, Tensor],
    vectors: Tensor,
    of_labels: Tensor,
    words: Sequence[tuple[int, int]],
    labels: Sequence[str],
) -> Spans:
    """Of each span and label the lowest of the scores of its words, one pair of a word and a label after another."""
    scores = torch.zeros(len(words), len(labels), 3)
    for word, vector in enumerate(vectors):
        for label, of_label in enumerate(of_labels):
            (a, b), (c, d) = (
                linear(tensors, f"scorer.proj_{name}", x).chunk(2)
                for name, x in (("token", vector), ("label", of_label))
            )
            scores[word, label] = two_layers(tensors, "scorer.out_mlp", torch.cat([a, c, b * d])).sigmoid()
    return {
        (words[first][0], words[last][1], label): float(
            min(scores[first, n, 0], scores[last, n, 1], *scores[first : last + 1, n, 2])
        )
        for first in range(len(words))
        for n, label in enumerate(labels)
        for last in range(first, len(words))
    }


def linear(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """The layer with this name."""
    return F.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def two_layers(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """The layers 0 and 3 with this name, around a rectifier."""
    return linear(tensors, f"{name}.3", linear(tensors, f"{name}.0", x).relu())


def read_by_lstm(tensors: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
    """The states of the BiLSTM; the vectors themselves without one."""
    state = {name.removeprefix("rnn.lstm."): value for name, value in tensors.items() if name.startswith("rnn.lstm.")}
    if not state:
        return vectors
    width = vectors.shape[1]
    lstm = nn.LSTM(width, width // 2, num_layers=len(state) // 8, bidirectional=True, batch_first=True)
    lstm.load_state_dict(state)
    return lstm(vectors[None])[0][0]


def chosen(spans: Spans, threshold: float) -> Spans:
    """The spans above a threshold that share no character with a more probable one."""
    result: Spans = {}
    for (start, end, label), chance in sorted(spans.items(), key=lambda item: -item[1]):
        if chance > threshold and all(end <= first or past <= start for first, past, _ in result):
            result[start, end, label] = chance
    return result
