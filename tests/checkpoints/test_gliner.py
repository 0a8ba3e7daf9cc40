"""Models of GLiNER are read: scores as their layers are defined and as their owner gives them, rows, and refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import bertsmith
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.specs.predictions import EntitiesPrediction
from checkpoints.gliner_folders import MARKS, encoder_of, tokenizer_there, write_gliner
from oracles.gliner_oracle import Spans, chosen, scores_of_spans
from tasks.architecture_samples import change_json

TEXTS = (
    "anna was in Rome.",
    "The film\u2014a GREAT one, it-was bad_plot",
    "who? anna bert carl of lima and of oslo was in a film and it was poor",
    "\u4e2d\u56fd na\u00efve \U0001f600 (it's) 3.5",
    "x",
    "",
    " \n",
)
LABELS = ("who", "a good film", "Place")
# What `predict_entities` of gliner 0.2.29 gave for the third text, with a threshold of 0.45.
RECORDED = (
    (
        "bert",
        "markerV0",
        1,
        {
            (0, 9, "Place"): 0.77363,
            (10, 14, "Place"): 0.72993,
            (15, 19, "Place"): 0.68588,
            (20, 22, "Place"): 0.75372,
            (23, 27, "Place"): 0.75047,
            (28, 34, "Place"): 0.79056,
            (35, 39, "Place"): 0.81316,
            (40, 48, "Place"): 0.80182,
            (49, 57, "Place"): 0.82588,
            (58, 64, "Place"): 0.8123,
            (65, 69, "Place"): 0.81319,
        },
    ),
    (
        "deberta-v2",
        "marker",
        0,
        {
            (0, 3, "who"): 0.56356,
            (3, 4, "Place"): 0.96174,
            (5, 9, "who"): 0.75493,
            (10, 19, "who"): 0.92931,
            (20, 27, "who"): 0.94194,
            (28, 31, "who"): 0.65363,
            (32, 34, "Place"): 0.86249,
            (35, 46, "Place"): 0.96589,
            (47, 57, "who"): 0.92938,
            (58, 60, "who"): 0.67053,
            (61, 64, "who"): 0.85574,
            (65, 69, "Place"): 0.88276,
        },
    ),
    (
        "deberta-v2",
        "token_level",
        0,
        {
            (3, 27, "a good film"): 0.64662,
            (28, 43, "a good film"): 0.53623,
            (44, 64, "a good film"): 0.51753,
        },
    ),
)
CASES = (
    ("bert", "markerV0", 1),
    ("bert", "marker", 2),
    ("bert", "token_level", 1),
    ("deberta-v2", "markerV0", 2),
    ("deberta-v2", "marker", 0),
    ("deberta-v2", "token_level", 0),
)


def spans_of(prediction: Any) -> Spans:
    """The answers by characters."""
    assert isinstance(prediction, EntitiesPrediction)
    offsets = prediction.offsets or ()
    pairs = zip(prediction.entities, prediction.probabilities, strict=True)
    return {(offsets[span.start][0], offsets[span.end - 1][1], span.type): chance for span, chance in pairs}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on a BERT."""
    return write_gliner(tmp_path_factory.mktemp("gliner") / "model")


@pytest.mark.parametrize(("architecture", "mode", "lstm_layers"), CASES)
def test_spans_and_probabilities_are_those_of_the_definition(
    tmp_path: Path, architecture: str, mode: str, lstm_layers: int
) -> None:
    folder = write_gliner(tmp_path / "model", architecture, mode=mode, lstm_layers=lstm_layers)
    tensors, tokenizer = load_file(folder / "model.safetensors"), tokenizer_there(architecture, *MARKS)
    encoder = encoder_of(architecture, vocab_size=len(tokenizer))
    prefix = "token_rep_layer.bert_layer.model."
    encoder.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    model, counts = bertsmith.load(folder, device="cpu"), set()
    together = model.tag(list(TEXTS), LABELS, threshold=0.4)
    for text, prediction in zip(TEXTS, together, strict=True):
        with torch.no_grad():
            every = scores_of_spans(tensors, encoder, tokenizer, text, LABELS, 3) if text.strip() else {}
        answer = spans_of(prediction)
        assert answer == pytest.approx(chosen(every, 0.4), abs=1e-5)
        assert spans_of(model.tag([text], LABELS, threshold=0.4)[0]) == pytest.approx(answer, abs=1e-6)
        counts.add(len(answer))
    assert len(counts) > 2


@pytest.mark.parametrize(("architecture", "mode", "lstm_layers", "recorded"), RECORDED)
def test_numbers_are_those_that_the_owner_gave(
    tmp_path: Path, architecture: str, mode: str, lstm_layers: int, recorded: Spans
) -> None:
    folder = write_gliner(tmp_path / "model", architecture, mode=mode, lstm_layers=lstm_layers)
    (prediction,) = bertsmith.load(folder, device="cpu").tag([TEXTS[2]], LABELS, threshold=0.45)
    assert spans_of(prediction) == pytest.approx(recorded, abs=2e-5)


@pytest.mark.parametrize(("architecture", "mode", "lstm_layers"), CASES)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("overlap", ["none", "nested"])
def test_spans_and_probabilities_are_those_of_gliner(
    tmp_path: Path, architecture: str, mode: str, lstm_layers: int, overlap: str
) -> None:
    gliner = pytest.importorskip("gliner")
    folder = write_gliner(tmp_path / "model", architecture, mode=mode, lstm_layers=lstm_layers)
    owner, flat = gliner.GLiNER.from_pretrained(str(folder)), overlap == "none"
    random = np.random.default_rng(2)
    words = " ".join(TEXTS).split()
    texts = [*TEXTS, *(" ".join(random.choice(words, random.integers(1, 20))) for _ in range(20))]
    labels = {"who": "anna", "film": "a good film", "Place": "Place"}  # descriptions in place of names
    for asked in (list(LABELS), labels):
        answers = owner.inference(texts, asked, threshold=0.45, flat_ner=flat, multi_label=not flat)
        ours = bertsmith.load(folder, device="cpu").tag(texts, asked, threshold=0.45, overlap=overlap)
        for answer, prediction in zip(answers, ours, strict=True):
            theirs = {(span["start"], span["end"], span["label"]): span["score"] for span in answer}
            assert spans_of(prediction) == pytest.approx(theirs, abs=1e-5)


def test_a_row_has_the_labels_the_separator_and_the_words_in_one_text(folder: Path) -> None:
    model = bertsmith.load(folder, device="cpu")
    (example,), ((tokens,),) = model.read(["anna it-was bad_plot."], "tag", question=(("who", ""), ("one", "a film")))
    assert example.words == ("anna", "it-was", "bad_plot", ".")
    pieces = "[CLS] <<ENT>> who <<ENT>> a film <<SEP>> anna it - was bad _ plot . [SEP]".split()
    assert tokens == len(pieces)


def test_a_word_without_pieces_is_left_out(folder: Path) -> None:
    model = bertsmith.load(folder, device="cpu")
    plain, marked = model.tag(["anna was bad", "anna \u200b was bad"], LABELS, threshold=0.0, overlap="any")
    assert marked.words == plain.words == ("anna", "was", "bad")
    assert marked.offsets == ((0, 4), (7, 10), (11, 14))
    assert marked.probabilities == pytest.approx(plain.probabilities)
    assert [answer.words for answer in model.tag(["\u200b", "\u0301"], LABELS)] == [(), ("\u0301",)]


@pytest.mark.parametrize(("longest", "limit"), [(12, 64), (384, 20)])
def test_a_text_of_too_many_words_or_pieces_is_read_in_windows(tmp_path: Path, longest: int, limit: int) -> None:
    folder = write_gliner(tmp_path / "model", max_len=longest)
    change_json(folder / "tokenizer_config.json", model_max_length=limit)
    model = bertsmith.load(folder, device="cpu")
    text = "anna was in oslo and it was a good film of carl in one great plot"
    (prediction,) = model.tag([text], ["who", "one"], threshold=0.0, overlap="any")
    words = len(text.split())
    spans = [(first, last, label) for (first, last, label), _ in prediction.candidates]
    assert len(spans) == len(set(spans)) == 2 * (3 * words - 3), "each is scored once, in one window"
    (start,) = model.tag([" ".join(text.split()[:12])], ["who", "one"], threshold=0.0, overlap="any")
    if longest == 12:  # the first window
        chances = dict(prediction.candidates)
        assert all(chances[span] == pytest.approx(chance, abs=1e-6) for span, chance in start.candidates if span[0] < 8)


@pytest.mark.parametrize("longest", [5, 384])
def test_an_entity_of_scored_words_has_any_number_of_words_of_its_row(tmp_path: Path, longest: int) -> None:
    folder = write_gliner(tmp_path / "model", mode="token_level", max_len=longest)
    text = "anna was in oslo and it was"
    (prediction,) = bertsmith.load(folder, device="cpu").tag([text], ["who", "one"], threshold=0.0, overlap="any")
    spans = {span[:2] for span, _ in prediction.candidates}
    assert len(prediction.candidates) == 2 * len(spans), "each is scored once, in one window"
    assert max(last - first for first, last in spans) == min(longest, len(text.split()))
    if longest == 384:
        assert len(spans) == 7 * 8 / 2


def test_the_encoder_of_a_folder_without_one_is_that_of_the_model_it_names(tmp_path: Path) -> None:
    whole, base = write_gliner(tmp_path / "whole"), tmp_path / "base"
    tokenizer_there("bert").save_pretrained(base)
    encoder_of("bert").config.save_pretrained(base)
    usual = {"class_token_index": -1, "vocab_size": -1, "encoder_config": None}
    folder = write_gliner(tmp_path / "model", model_name=str(base), **usual)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    answers = [bertsmith.load(path, device="cpu").tag([TEXTS[2]], LABELS)[0] for path in (whole, folder)]
    assert answers[0] == answers[1]
    change_json(folder / "gliner_config.json", class_token_index=38, vocab_size=40)
    with pytest.raises(CheckpointError, match=r"<<ENT>> and <<SEP>> in the vocabulary .* found the ids -1 and -1"):
        bertsmith.load(folder)
    change_json(folder / "gliner_config.json", model_name=None)
    with pytest.raises(CheckpointError, match="or the model_name of its encoder; found None"):
        bertsmith.load(folder)
    change_json(folder / "gliner_config.json", model_name=str(tmp_path / "none"))
    with pytest.raises(InputError, match="which does not exist"):
        bertsmith.load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"span_mode": "markerV2"},
            "span_mode 'markerV0' or 'marker' or 'token_level' .* found 'markerV2'; use it with the package",
        ),
        ({"span_mode": "token_level"}, r"reader.of_word.weight of shape \[80, 16\] .* found none"),
        ({"represent_spans": True}, "represent_spans False"),
        ({"model_type": "gliner_streaming_span"}, "found 'gliner_streaming_span'"),
        ({"labels_encoder": "x/y"}, "labels_encoder None .* found 'x/y'"),
        ({"labels_decoder": "x/y"}, "labels_decoder"),
        ({"relations_layer": "none"}, "relations_layer"),
        ({"subtoken_pooling": "mean"}, "subtoken_pooling 'first'"),
        ({"words_splitter_type": "jieba"}, "words_splitter_type 'whitespace'"),
        ({"fuse_layers": True}, "fuse_layers False"),
        ({"embed_ent_token": False}, "embed_ent_token True"),
        ({"post_fusion_schema": "l2l"}, "post_fusion_schema"),
        ({"encoder_config": [1]}, "encoder_config in .* must be an object"),
        ({"hidden_size": 10**9}, "hidden_size in .* must be a whole number from 2 to 65536"),
        ({"max_width": "12"}, "max_width in .* must be a whole number from 1"),
        ({"encoder_config": {"model_type": "modernbert"}}, "an encoder bert or deberta-v2 .* found 'modernbert'"),
        ({"num_rnn_layers": 2}, r"reader.lstm.1.right.weight_ih_l0 of shape \[32, 16\] .* found none"),
        ({"num_rnn_layers": 0}, r"no reader.lstm.0.right.bias_hh_l0 in .* found \[32\]"),
        ({"hidden_size": 8}, r"of shape \[8, 32\] .* found \[16, 32\]"),
        ({"class_token_index": 3}, "the id of class_token_index, 3; found the ids"),
    ],
)
def test_models_that_are_not_read_are_refused_by_name(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    folder = write_gliner(tmp_path / "model")
    if "num_rnn_layers" in values or "hidden_size" in values:
        change_json(folder / "gliner_config.json", **values)
    else:
        folder = write_gliner(tmp_path / "other", **values)
    with pytest.raises(BertsmithError, match=message):
        bertsmith.load(folder)


@pytest.mark.parametrize("damage", ["a vector", "another length", "none"])
def test_a_damaged_layer_of_spans_is_refused(folder: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    name = "span_rep_layer.span_rep_layer.out_project.3.weight"
    changed = {"a vector": tensors[name][0], "another length": tensors[name][1:]}
    save_file(
        {**tensors, name: changed[damage]}
        if damage != "none"
        else {other: tensor for other, tensor in tensors.items() if other != name},
        copy / "model.safetensors",
    )
    with pytest.raises(CheckpointError, match=r"reader.of_first.weight of shape .* found none"):
        load_any(copy)


def test_a_missing_tensor_of_the_encoder_is_named_as_it_is_there(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    name = "token_rep_layer.bert_layer.model.encoder.layer.0.output.dense.bias"
    save_file({other: tensor for other, tensor in tensors.items() if other != name}, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"no {name}"):
        load_any(copy)


def test_labels_must_be_named_and_have_no_mark(folder: Path) -> None:
    model = bertsmith.load(folder, device="cpu")
    with pytest.raises(ConfigError, match=r"labels to look for.* found none; name them"):
        model.tag(["anna"])
    with pytest.raises(ConfigError, match="names of labels without <<ENT>>"):
        model.tag(["anna"], ["a <<ENT>> b"])


@pytest.mark.parametrize("mode", ["markerV0", "token_level"])
def test_a_folder_of_our_own_gives_the_same_answers(mode: str, tmp_path: Path) -> None:
    folder = write_gliner(tmp_path / "model", mode=mode)
    bertsmith.convert(folder, tmp_path / "ours", to="huggingface")
    answers = [bertsmith.load(path, device="cpu").tag(list(TEXTS), LABELS) for path in (folder, tmp_path / "ours")]
    assert answers[0] == answers[1]
    report = bertsmith.inspect_model(folder)
    assert report.what == "folder of GLiNER, BERT for entities-by-name; heads: reader"
    assert report.task == "entities-by-name"


def test_sentences_of_a_file_are_scored_in_their_words(folder: Path, tmp_path: Path) -> None:
    model = bertsmith.load(folder, device="cpu")
    words = "anna it-was in oslo".split()
    (prediction,) = model.tag([words], ["who", "where"])
    rows = [{"tokenized_text": words, "ner": [[s.start, s.end - 1, s.type] for s in prediction.entities]}]
    rows[0]["ner"] += [[0, 3, "where"]]
    path = tmp_path / "sentences.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = bertsmith.evaluate(folder, path, device="cpu").scores
    assert scores["precision"] == 1.0
