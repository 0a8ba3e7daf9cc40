"""A loaded model answers as its parts do, in any batch; unsupported methods and invalid input give one-line errors."""

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bertsmith
from bertsmith import Model, WordEncoder, load
from bertsmith.app.library.inputs import silently
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, CutWarning, InputError
from bertsmith.base.core.progress import quiet, tell
from bertsmith.base.machine.runtime import BATCH_TOLERANCE, INFERENCE_TOKENS
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.vectors.loading import load_embedder, load_token_features
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.datasets.examples import TaggedExample, TextExample
from bertsmith.tasks.specs.kinds import task_for
from model.examples import shake
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of

TEXTS = ["the good film was it", "anna", "", "a plot of rome in one film", "the good film was it", "who ? anna ."]
GAPS = ["the [MASK] was", "[MASK] anna [MASK] .", "a [MASK]", "one film in rome and [MASK] was it [MASK] plot of a ."]
METHODS = {
    "single": "classify", "pair": "classify", "several labels": "classify", "windows": "classify", "number": "score",
    "choice": "choose", "tags": "tag", "answer": "answer", "answer or none": "answer",
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A model folder of each kind, and a pre-trained one."""
    folder = tmp_path_factory.mktemp("library")
    model = untrained(CONFIG, seed=3)
    shake(model)
    save_pretrained(folder / "base", model, TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}))
    for kind, spec in SPECS.items():
        head = task_for(spec).head
        loaded = load_for_task(load_any(folder / "base"), head, keep_head=False, seed=5)
        shake(loaded.model)
        info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
        save_pretrained(
            folder / kind, loaded.model, TOKENIZER, ModelMetadata.from_dict(info), trained=("pooler", head.part)
        )
    return {kind: folder / kind for kind in ("base", *SPECS)}


@pytest.fixture(scope="module")
def base(folders) -> Model:
    return load(folders["base"], device="cpu")


def item_of(example):
    """The input that a user passes for an example."""
    values = dataclasses.asdict(example)
    names = [("context", "endings"), ("question", "context"), ("first", "second")]
    if "words" in values:
        return list(example.words)
    pair = next(tuple(values[name] for name in both) for both in names if both[0] in values and both[1] in values)
    return pair[0] if pair[1] is None else pair


def test_a_model_says_what_it_is_and_what_it_can_do(folders, base):
    assert (base.name, base.task, base.labels, base.max_length, base.width) == ("base", None, (), 64, 32)
    assert base.abilities == ("fill", "next_sentence", "embed", "features", "rerank", "classify_by_labels")
    for kind, method in METHODS.items():
        model = load(folders[kind], device="cpu")
        assert model.abilities == (method, "embed", "features", *(["rerank"] if kind == "pair" else []))
        assert (model.task, model.labels) == (SPECS[kind].kind, SPECS[kind].labels)
        assert (model.max_length, model.embed_length) == (SPECS[kind].settings.max_length, 64)
        assert model.max_question == (SPECS[kind].settings.max_question if method == "answer" else 0)
    assert load(str(folders["base"]), device="cpu").name == "base"


def test_a_run_folder_is_called_by_its_own_name(folders, tmp_path):
    (tmp_path / "my-run").mkdir()
    (tmp_path / "my-run" / "model").symlink_to(folders["tags"])
    assert load(tmp_path / "my-run", device="cpu").name == "my-run"


@pytest.mark.parametrize("kind", METHODS)
def test_a_fine_tuned_model_answers_as_its_predictor(folders, kind):
    examples = examples_of(kind, 12, seed=2)
    items = [item_of(example) for example in examples]
    model = load(folders[kind], device="cpu")
    options = {"n_best": 100} if METHODS[kind] == "answer" else {}
    answers = getattr(model, METHODS[kind])(items, **options)
    assert answers == load_predictor(folders[kind], device="cpu").predict(examples)
    assert type(answers) is list


def row_of(kind, item, number):
    """An item as a row of a table."""
    if kind == "tags":
        return {"tokens": list(item)}
    if kind == "choice":
        endings = {f"ending{position}": ending for position, ending in enumerate(item[1])}
        return {"sent1": item[0], "sent2": "", **endings}
    if METHODS[kind] == "answer":
        return {"id": str(number), "question": item[0], "context": item[1]}
    return {"text": item} if isinstance(item, str) else dict(zip(("text", "text2"), item, strict=True))


@pytest.mark.parametrize("kind", METHODS)
def test_the_rows_of_a_table_are_answered_as_the_items_of_a_list(folders, kind):
    items = [item_of(example) for example in examples_of(kind, 6, seed=2)]
    model = load(folders[kind], device="cpu")
    answers = [answer.to_dict() for answer in getattr(model, METHODS[kind])(items)]
    frame = pd.DataFrame([row_of(kind, item, number) for number, item in enumerate(items)], index=list("fedcba"))
    table = model.predict(frame)
    assert list(table.index) == list(frame.index)
    assert list(table) == ["prediction", "probability"][: 1 if kind in ("several labels", "number", "tags") else 2]
    pd.testing.assert_index_equal(model.predict(frame[:0]).columns, table.columns)
    assert model.predict([]) == getattr(model, METHODS[kind])([]) == []
    with pytest.raises(ConfigError, match=r"unknown option of predict: 'textcolumn'; did you mean 'text_column'\?"):
        model.predict(frame, textcolumn="text")
    name = {"several labels": "chosen", "number": "value", "tags": "tags"}.get(kind, "label")
    name = name if name in answers[0] else "text"
    assert table["prediction"].tolist() == [answer[name] for answer in answers]
    if "probability" in table:
        chances = [answer.get("probability") or max(leaves(answer["probabilities"])) for answer in answers]
        assert table["probability"].tolist() == pytest.approx(chances, abs=BATCH_TOLERANCE)


def test_the_texts_of_a_frame_are_tagged_as_those_of_a_list(folders):
    model = load(folders["tags"], device="cpu")
    frame = pd.DataFrame({"text": ["anna was in rome.", None, " ", "a film"]}, index=list("dcba"))
    table = model.predict(frame)
    assert list(table.index) == list(frame.index)
    tags = [list(answer.tags) for answer in model.tag(["anna was in rome.", "a film"])]
    assert table["prediction"].tolist() == [tags[0], None, None, tags[1]]


@pytest.mark.parametrize("kind", METHODS)
def test_an_answer_does_not_depend_on_what_comes_with_it(folders, kind):
    items = [item_of(example) for example in examples_of(kind, 9, seed=4)]
    ask = getattr(load(folders[kind], device="cpu"), METHODS[kind])
    for item, together in zip(items, ask(items), strict=True):
        (alone,) = ask([item])
        assert numbers_of(alone) == pytest.approx(numbers_of(together), rel=BATCH_TOLERANCE, abs=BATCH_TOLERANCE)
        assert words_of(alone) == words_of(together)


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def numbers_of(prediction):
    return [leaf for leaf in leaves(prediction.to_dict()) if isinstance(leaf, float)]


def words_of(prediction):
    return [leaf for leaf in leaves(prediction.to_dict()) if not isinstance(leaf, float)]


def require_same_gaps(gaps, wanted):
    """Checks that the pieces are the same, and their probabilities equal within the tolerance."""
    assert [[guess.piece for guess in gap] for gap in gaps] == [[guess.piece for guess in gap] for gap in wanted]
    for gap, other in zip(gaps, wanted, strict=True):
        chances = [prediction.probability for prediction in other]
        assert [guess.probability for guess in gap] == pytest.approx(chances, abs=BATCH_TOLERANCE)


def test_masks_are_filled_as_one_by_one(folders, base, monkeypatch):
    alone = load_pretraining_heads(str(folders["base"]), device="cpu")
    for tokens in (4096, 12):
        monkeypatch.setitem(INFERENCE_TOKENS, "cpu", tokens)
        together = base.fill(GAPS * 3, top=4)
        assert [len(gaps) for gaps in together] == [1, 2, 1, 2] * 3
        for text, gaps in zip(GAPS * 3, together, strict=True):
            require_same_gaps(gaps, alone.fill(text, top=4))


def test_next_sentences_are_judged_as_one_by_one(folders, base, monkeypatch):
    alone = load_pretraining_heads(str(folders["base"]), device="cpu")
    pairs = [("the film was good .", "it was"), ("who ?", "anna"), ("a " * 50, "the " * 50), ("it", "a plot in rome")]
    for tokens in (4096, 12):
        monkeypatch.setitem(INFERENCE_TOKENS, "cpu", tokens)
        with pytest.warns(CutWarning, match="the model reads: 1, 39 tokens in all"):
            every = base.next_sentence(pairs)
        for (first, second), score in zip(pairs, every, strict=True):
            (wanted,) = alone.next_sentence(first, [second])
            assert (score.text, score.cut_tokens) == (wanted.text, wanted.cut_tokens)
            assert score.probability == pytest.approx(wanted.probability, abs=BATCH_TOLERANCE)
        assert every[2].cut_tokens == 100 - 61


@pytest.mark.parametrize("kind", ["base", "single", "tags"])
def test_vectors_are_those_of_the_embedder_and_the_features(folders, kind):
    model = load(folders[kind], device="cpu")
    for pooling, normalize in ((None, None), ("cls", True), ("max", False), ("mean", None)):
        wanted = load_embedder(folders[kind], pooling=pooling, normalize=normalize, device="cpu").embed(TEXTS)
        np.testing.assert_array_equal(model.embed(TEXTS, pooling=pooling, normalize=normalize), wanted)
    words = [text.split() for text in TEXTS]
    for layers in ("last", "-1,-2"):
        wanted = load_token_features(folders[kind], layers=layers, device="cpu").word_vectors(words)
        result = model.features(words, layers=layers)
        assert all(torch.equal(tensor, other) for tensor, other in zip(result, wanted, strict=True))
        assert [vectors.shape[0] for vectors in result] == [len(sentence) for sentence in words]


def test_the_untrained_pooler_of_a_tagger_is_not_offered(folders):
    with pytest.raises(CheckpointError, match="trained pooler"):
        load(folders["tags"], device="cpu").embed(["anna"], pooling="pooler")
    assert load(folders["single"], device="cpu").embed(["anna"], pooling="pooler").shape == (1, 32)


def test_a_folder_of_sentence_transformers_is_read_as_it_says(folders, tmp_path):
    folder = tmp_path / "sentences"
    loaded = load_for_task(load_any(folders["base"]), task_for(SPECS["single"]).head, keep_head=False)
    save_pretrained(folder, loaded.model, TOKENIZER, ModelMetadata.from_dict({}), trained=())
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    kinds = ((0, "", "Transformer"), (1, "1_Pooling", "Pooling"), (2, "2_Normalize", "Normalize"))
    library = "sentence_transformers.models"
    rows = ", ".join(f'{{"idx": {n}, "path": "{path}", "type": "{library}.{kind}"}}' for n, path, kind in kinds)
    (folder / "modules.json").write_text(f"[{rows}]")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    model = load(folder, device="cpu")
    assert (model.abilities, model.max_length, model.embed_length) == (
        ("embed", "features", "rerank", "classify_by_labels"),
        7,
        7,
    )
    with pytest.warns(CutWarning, match="the model reads: 1, 2 tokens in all") as caught:
        vectors = model.embed(TEXTS)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(vectors, load_embedder(folder, device="cpu").embed(TEXTS))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert model.tokens(["the [SEP] film"]) == [5]
    assert (model.pair, model.reads_at_most("rerank"), model.reads_at_most("features")) == (None, 7, None)
    said = '{"prompts": {"query": "who ? "}, "default_prompt_name": "query"}'
    (folder / "config_sentence_transformers.json").write_text(said)
    model = load(folder, device="cpu")
    for ability in (None, "embed", "rerank"):
        assert model.tokens(["the [SEP] film", ""], ability) == [7, 4]
    assert (model.tokens(["the [SEP] film"], "pieces"), model.pieces(["[SEP]"])) == ([5], [["[SEP]"]])
    with pytest.raises(CheckpointError, match="the ability fill; found 'sentences', a model without a task head"):
        model.fill(["[MASK]"])


def test_a_truncated_text_warns_at_the_line_of_the_caller(folders, base):
    long = "film " * 70
    with pytest.warns(CutWarning, match="the model reads: 2, 16 tokens in all") as caught:
        base.embed([long, "film", long])
    assert [warning.filename for warning in caught] == [__file__]
    for kind, asked in (("single", "classify"), ("number", "score")):
        with pytest.warns(CutWarning, match="the model reads: 1") as caught:
            getattr(load(folders[kind], device="cpu"), asked)(["film", long])
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(CutWarning, match="the model reads: 1"):
        load(folders["pair"], device="cpu").rerank("a film", ["film", long])
    load(folders["windows"], device="cpu").classify([long])  # reads all of it


def test_a_model_of_pairs_reranks_by_its_last_label_and_an_encoder_by_the_cosine(folders, base):
    passages = ["good film", "", "rome"]
    pairs = load(folders["pair"], device="cpu")
    wanted = PairScorer(load_predictor(folders["pair"], device="cpu")).scores("a film", passages)
    assert pairs.rerank("a film", passages) == wanted
    vectors = base.embed(["a film", *passages]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert base.rerank("a film", passages) == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-6)
    assert base.rerank("a film", ["a film"]) == pytest.approx([1], abs=1e-6)


def test_entities_of_a_plain_text_have_their_character_offsets(folders):
    model = load(folders["tags"], device="cpu")
    text = "Anna, (bert)  was in ROME!"
    prediction, of_words = model.tag([text, ["Anna", "was", "in", "ROME"]])
    assert prediction.words == ("Anna", ",", "(", "bert", ")", "was", "in", "ROME", "!")
    assert prediction.entities, "the sample finds something"
    for entity in prediction.entities:
        begin, end = entity.characters
        assert text[begin:end].split() == entity.text.split()
    assert of_words.words == ("Anna", "was", "in", "ROME")
    assert all(entity.characters is None for entity in of_words.entities)


def test_texts_of_one_call_are_not_context_for_each_other(folders, tmp_path):
    spec = dataclasses.replace(
        SPECS["tags"], settings=dataclasses.replace(SPECS["tags"].settings, document_context=True)
    )
    loaded = load_for_task(load_any(folders["tags"]), task_for(spec).head, keep_head=True)
    save_pretrained(
        tmp_path / "m",
        loaded.model,
        TOKENIZER,
        ModelMetadata.from_dict({"spec": spec.to_dict()}),
        trained=("classifier",),
    )
    model = load(tmp_path / "m", device="cpu")
    together = model.tag(["anna was in rome", "carl was in oslo"])
    (alone,) = model.tag(["anna was in rome"])
    assert together[0].probabilities == pytest.approx(alone.probabilities, abs=BATCH_TOLERANCE)


def test_texts_and_pairs_may_come_together_where_the_model_takes_both(folders, tmp_path):
    spec = dataclasses.replace(SPECS["pair"], pair=None)
    loaded = load_for_task(load_any(folders["pair"]), task_for(spec).head, keep_head=True)
    save_pretrained(
        tmp_path / "m",
        loaded.model,
        TOKENIZER,
        ModelMetadata.from_dict({"spec": spec.to_dict()}),
        trained=("pooler", "classifier"),
    )
    model = load(tmp_path / "m", device="cpu")
    mixed = ["the film", ("the film", "good"), "anna", ("it", "was")]
    alone = load_predictor(tmp_path / "m", device="cpu")
    for item, prediction in zip(mixed, model.classify(mixed), strict=True):
        first, second = (item, None) if isinstance(item, str) else item
        (wanted,) = alone.predict([TextExample(id="0", first=first, second=second)])
        assert prediction.probabilities == pytest.approx(wanted.probabilities, abs=BATCH_TOLERANCE)


def test_the_best_answers_are_as_many_as_asked_for(folders):
    model = load(folders["answer"], device="cpu")
    question = ("who ?", "anna was in rome . the film")
    best, three = (model.answer([question], n_best=count)[0] for count in (1, 3))
    assert (len(best.n_best), len(three.n_best)) == (1, 3)
    assert best.n_best == three.n_best[:1]
    assert (best.text, best.probability) == (three.text, three.probability)


def test_tokens_are_counted_before_truncation(base, folders):
    texts = ["the film", "", ("who ?", "anna"), "a " * 200, "[MASK] films"]
    assert base.tokens(texts) == [4, 2, 6, 202, 5]
    assert base.pieces(["[MASK] films", ""]) == [["[MASK]", "film", "##s"], []]
    # A model without a masked-LM head reads [MASK] as three words.
    assert load(folders["single"], device="cpu").tokens(["[MASK]"]) == [5]


def test_tokens_are_counted_as_each_method_reads_them(base, folders):
    assert base.tokens(["[MASK]"]) == base.tokens(["[MASK]"], "fill") == base.tokens(["[MASK]"], "pieces") == [3]
    assert base.tokens([("[MASK]", "a")], "next_sentence") == [3 + 1 + 3]
    texts = ["[MASK] " * 30, "the [SEP] film", ""]
    counted = base.tokens(texts, "embed")
    embedder = load_embedder(folders["base"], device="cpu")
    assert counted == base.tokens(texts, "rerank") == (embedder.encode(texts).lengths + 2).tolist()
    cut = embedder.embed_counting(texts)[1].tolist()
    assert cut == [max(count - base.embed_length, 0) for count in counted] == [28, 0, 0]
    tagger = load(folders["tags"], device="cpu")
    sentences = ["a \u0301 b", ["films", "", " "], ["a", "b"], []]
    assert tagger.tokens(sentences, "tag") == tagger.tokens(sentences) == [5, 6, 4, 2]
    assert base.tokens([["films", "", " "], ["[MASK]", "a"]], "features") == [6, 6]
    examples = [TaggedExample(id="", words=tuple(words)) for words in sentences[1:3]]
    assert task_for(SPECS["tags"]).encode(examples, TOKENIZER).rows.lengths.tolist() == [6, 4]
    with pytest.raises(CheckpointError, match="the ability fill"):
        tagger.tokens(["a"], "fill")


def test_a_model_says_how_much_each_method_reads(base, folders):
    windows, pairs = load(folders["windows"], device="cpu"), load(folders["pair"], device="cpu")
    assert (windows.reads_at_most("classify"), windows.reads_at_most("embed")) == (None, 64)
    assert (pairs.reads_at_most("rerank"), pairs.reads_at_most("embed"), pairs.pair) == (32, 64, True)
    assert (base.reads_at_most("fill"), windows.pair, base.pair) == (64, False, None)
    assert load(folders["tags"], device="cpu").reads_at_most("tag") is None


def test_a_truncated_question_warns(folders):
    model = load(folders["answer"], device="cpu")
    long = "who " * (model.max_question - 20)
    context = "anna was in rome . the film"
    result = model.answer([("who ?", context)])
    assert [prediction.cut_tokens for prediction in result] == [0]
    spec = dataclasses.replace(SPECS["answer"], settings=dataclasses.replace(SPECS["answer"].settings, max_question=9))
    small = load_predictor(folders["answer"], device="cpu")
    small.task = task_for(spec)
    model = Model("small", predictor=small)
    with pytest.warns(CutWarning, match="the model reads: 2, ") as caught:
        result = model.answer([("who ?", context), (long, context), (long, context * 9)])
    assert [prediction.cut_tokens for prediction in result] == [0, 35, 35]
    assert [warning.filename for warning in caught] == [__file__]


def test_a_tagger_gives_an_empty_answer_to_a_text_without_words(folders):
    tagger = load(folders["tags"], device="cpu")
    result = tagger.tag(["anna", " ", [], ["rome"], ""])
    assert [prediction.words for prediction in result] == [("anna",), (), (), ("rome",), ()]
    assert result[1].to_dict()["entities"] == []
    assert [answer.words for answer in tagger.tag(["", ""])] == [(), ()]


def test_equal_texts_of_a_call_are_computed_once_and_answered_alike(folders):
    model, rows = load(folders["base"], device="cpu"), []
    model.encoder.model.register_forward_pre_hook(lambda _, arguments: rows.append(arguments[0].num_rows))
    # The third of each is spelled differently but has the pieces of the first.
    texts = ["who ?", "anna was in rome", "Who?"]
    for ask, items, different in (
        (model.fill, ["who [MASK]", "anna was [MASK] [MASK]", "Who[MASK]"], 2),
        (model.next_sentence, [(text, "a film") for text in texts], 2),
        (model.embed, texts, 2),
        (model.features, [["who", "?"], ["anna", "was"], ["Who", "?"]], 2),
        (lambda passages: model.rerank("a film", passages), texts, 3),
    ):
        rows.clear()
        result = ask(items * 7)
        assert sum(rows) == different, ask
        assert len(result) == 21
        for number, vectors in enumerate(result):
            wanted = result[number % 3 % 2]
            if ask == model.next_sentence:  # whose answers also say what was asked
                vectors, wanted = vectors.probability, wanted.probability
            is_array = isinstance(vectors, np.ndarray | torch.Tensor)
            assert np.array_equal(vectors, wanted) if is_array else vectors == wanted
    first, second = model.fill(["who [MASK]"] * 2)
    assert first == second
    first[0].clear()
    assert second[0], "each caller may change its own"


def test_empty_input_gives_empty_output(folders, base):
    assert (base.fill([]), base.next_sentence([]), base.features([]), base.tokens([]), base.pieces([])) == ([],) * 5
    assert base.rerank("anna", []) == []
    assert base.embed([]).shape == (0, 32)
    for kind, method in METHODS.items():
        assert getattr(load(folders[kind], device="cpu"), method)([]) == []


def test_an_unsupported_method_is_one_line_that_lists_the_abilities(folders, base):
    for name in ("classify", "score", "choose", "tag", "answer"):
        with pytest.raises(CheckpointError, match=f"the ability {name}; found 'base', a model without a task head"):
            getattr(base, name)(["anna"])
    tagger = load(folders["tags"], device="cpu")
    for name in ("fill", "next_sentence", "classify"):
        with pytest.raises(CheckpointError, match="found 'tags', a model for tagging; it has tag, embed, features"):
            getattr(tagger, name)(["anna"])
    with pytest.raises(CheckpointError, match="the ability rerank"):
        tagger.rerank("anna", ["rome"])


@pytest.mark.parametrize(
    ("kind", "method", "texts", "message"),
    [
        ("base", "embed", "anna", "a list of texts; found one text"),
        ("base", "embed", None, "found a value of type NoneType"),
        ("base", "embed", {"a": 1}, "found a value of type dict"),
        ("base", "embed", ["anna", 3], "a text as text 2; found 3"),
        ("base", "embed", ["anna", None], "a text as text 2; found None"),
        ("base", "embed", [b"anna"], "a text as text 1"),
        ("base", "embed", ["an\ud800na"], "valid Unicode in text 1; found a lone surrogate at character 2"),
        ("base", "features", ["anna"], "a list of words as sentence 1; found 'anna'"),
        ("base", "features", [["anna", 1]], "a text as word 2 of sentence 1; found 1"),
        ("base", "fill", ["anna"], r"a \[MASK\] in text 1; found 'anna'"),
        ("base", "fill", ["[MASK]", "[MASK]" + " anna" * 70], "at most 62 pieces.*in text 2.*found 71"),
        ("base", "next_sentence", [("anna",)], "two texts as pair 1"),
        ("base", "next_sentence", [("anna", " ")], "two texts in pair 1; found an empty one"),
        ("base", "tokens", [("a", "b", "c")], "a text or a pair of texts as text 1"),
        ("base", "fill", pd.DataFrame({"text": ["a"]}), r"found a whole table of type DataFrame; .*frame\['text'\]"),
        ("base", "embed_ids", pd.DataFrame({"ids": [[1]]}), "a list of rows of token ids; found a whole table"),
        ("base", "embed", pd.DataFrame({"msg": ["a"]}), r"name one, as in embed\(frame\['msg'\]\)"),
        ("pair", "classify", pd.DataFrame({"text": ["a"], "label": ["yes"]}), r"or call predict\(frame\) of a model"),
        ("number", "predict", ["anna"], r"found a list of texts; call score\(\.\.\.\) with it"),
        ("pair", "predict", [("a", "b")], r"found a list of lists; call classify\(\.\.\.\) with it"),
        ("single", "predict", pd.Series(["anna"]), r"found a list of texts; call classify\(\.\.\.\) with it"),
        ("single", "predict", {"train": []}, "name one of its parts"),
        ("single", "predict", pd.DataFrame({"msg": ["a"], "id": ["1"]}), "name it with `text_column`$"),
        ("single", "classify", [("a", "b")], "a single text in text 1"),
        ("pair", "classify", [("a", "b"), "a"], "a pair of texts in text 2"),
        ("choice", "choose", [("a", "b")], "a context and a list of endings as question 1"),
        ("choice", "choose", [("a", ["b"])], "at least two endings in question 1; found 1"),
        ("tags", "tag", ["anna", ["rome", 1]], "a text as word 2 of text 2"),
        ("tags", "tag", [{"text": "anna"}], "a list of words as text 1"),
        ("answer", "answer", [("who ?", "anna"), ("", "anna")], "a question in question 2; found an empty one"),
    ],
)
def test_invalid_input_is_one_clear_line(folders, kind, method, texts, message):
    with pytest.raises(InputError, match=message):
        getattr(load(folders[kind], device="cpu"), method)(texts)


def test_invalid_counts_are_refused(folders, base):
    for count in (0, -1, True, 1.5, "3"):
        with pytest.raises(InputError, match="top as a whole number of at least 1"):
            base.fill(["[MASK]"], top=count)
        with pytest.raises(InputError, match="n_best as a whole number"):
            load(folders["answer"], device="cpu").answer([("who ?", "anna")], n_best=count)
    for pooling in ("mode", 5, ["mean"]):
        with pytest.raises(ConfigError, match="unknown pooling"):
            base.embed(["anna"], pooling=pooling)
    for prompt in ("query", 5, []):
        with pytest.raises(ConfigError, match="a prompt of the model"):
            base.embed(["anna"], prompt=prompt)
    for layers in ("all of them", None, -1, [-1, -2]):
        with pytest.raises(ConfigError, match="choice of layers"):
            base.features([["anna"]], layers=layers)


class Column:
    """A column of a table, with the interface that pandas and others share."""

    def to_numpy(self):
        return np.array(["anna", "rome"], dtype=object)


def test_columns_and_arrays_are_lists_too(base):
    wanted = base.embed(["anna", "rome"])
    np.testing.assert_array_equal(base.embed(Column()), wanted)
    np.testing.assert_array_equal(base.embed(np.array(["anna", "rome"])), wanted)
    np.testing.assert_array_equal(base.embed(("anna", "rome")), wanted)
    assert base.tokens(np.array([["anna", "rome"]], dtype=object)) == [5]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_precisions_answer_all_that_is_asked(folders, base, precision):
    options = {"device": "cpu", "precision": precision}
    model = load(folders["base"], **options)
    wanted = load_pretraining_heads(str(folders["base"]), **options).fill(GAPS[1], top=3)
    assert [[guess.piece for guess in gap] for gap in model.fill(GAPS, top=3)[1]] == [
        [f.piece for f in gap] for gap in wanted
    ]
    np.testing.assert_array_equal(model.embed(TEXTS), load_embedder(folders["base"], **options).embed(TEXTS))
    assert np.abs(model.embed(TEXTS) - base.embed(TEXTS)).max() < 0.2
    assert model.features([["anna", "was"]])[0].dtype == torch.float32
    examples = examples_of("pair", 6)
    pairs = load(folders["pair"], **options)
    assert pairs.classify([item_of(example) for example in examples]) == load_predictor(
        folders["pair"], **options
    ).predict(examples)
    assert pairs.embed(TEXTS).shape == (6, 32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_says_the_same(folders, base):
    model = load(folders["base"], device="cuda")
    np.testing.assert_allclose(model.embed(TEXTS), base.embed(TEXTS), atol=1e-3)
    for gaps, others in zip(model.fill(GAPS), base.fill(GAPS), strict=True):
        for gap, other in zip(gaps, others, strict=True):
            assert [prediction.probability for prediction in gap] == pytest.approx(
                [prediction.probability for prediction in other], abs=1e-3
            )
    pairs = [("who ?", "anna"), ("it was", "a plot in rome")]
    for answers, wanted in zip(model.next_sentence(pairs), base.next_sentence(pairs), strict=True):
        assert answers.probability == pytest.approx(wanted.probability, abs=1e-3)
    layer = WordEncoder(model).to("cuda")
    assert [part.device.type for part in layer([["anna"], ["in", "rome"]])] == ["cuda", "cuda"]
    for kind in ("single", "pair", "number", "choice", "tags"):
        examples = examples_of(kind, 4)
        answers = getattr(load(folders[kind], device="cuda"), METHODS[kind])([item_of(example) for example in examples])
        for answer, wanted in zip(answers, load_predictor(folders[kind], device="cpu").predict(examples), strict=True):
            assert numbers_of(answer) == pytest.approx(numbers_of(wanted), abs=1e-3)


def test_there_is_one_set_of_weights(folders):
    for kind in ("base", "single", "answer"):
        model = load(folders[kind], device="cpu")
        model.embed(["anna"], pooling="max")
        model.features([["anna"]], layers="second-to-last")
        below = model._predictor or model._pretrained
        assert model.encoder.model is below.model.encoder
        assert all(embedder.encoder is model.encoder for embedder in model._embedders.values())


def test_many_threads_get_the_answers_of_one(folders, base, capfd, monkeypatch):
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    texts = [TEXTS[number % len(TEXTS)] for number in range(40)]
    wanted = base.embed(texts, pooling="cls", normalize=True)
    shared, result = load(folders["base"], device="cpu"), {}
    barrier = threading.Barrier(6)

    def ask(number: int) -> None:
        barrier.wait()
        result[number] = shared.embed(texts, pooling="cls", normalize=True), shared.fill(GAPS), shared.tokens(texts)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 6
    assert len(shared._embedders) == 2
    for vectors, gaps, tokens in result.values():
        np.testing.assert_allclose(vectors, wanted, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
        assert tokens == result[0][2]
        for gap, other in zip(gaps, result[0][1], strict=True):
            require_same_gaps(gap, other)
    assert capfd.readouterr().err == ""


def test_answers_are_silent_and_what_comes_after_is_not(folders, capfd, monkeypatch):
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    load(folders["single"], device="cpu").classify(["anna"])
    assert capfd.readouterr().err == ""
    entered, left = threading.Event(), threading.Event()

    def stay() -> None:
        with silently():
            entered.set()
            left.wait()

    thread = threading.Thread(target=stay)
    with silently():
        thread.start()
        entered.wait()
    tell("unheard")
    left.set()
    thread.join()
    tell("heard")
    assert capfd.readouterr().err == "heard\n"


def test_words_of_a_batch_are_a_layer_of_another_model(folders, base):
    sentences = [["the", "films", "of", "anna"], [], ["rome"]]
    layer = WordEncoder(base, layers="-1,-2", unit="mean")
    vectors, mask = layer(sentences)
    assert (vectors.shape, vectors.dtype, layer.width) == ((3, 4, 64), torch.float32, 64)
    assert mask.tolist() == [[True] * 4, [False] * 4, [True] + [False] * 3]
    assert not vectors[~mask].any()
    wanted = load_token_features(folders["base"], layers="-1,-2", unit="mean", device="cpu")
    torch.testing.assert_close(vectors[mask], torch.cat(wanted.word_vectors(sentences)))
    whole = torch.nn.ModuleDict({"words": layer, "head": torch.nn.Linear(64, 2)})
    assert set(whole.state_dict()) == {"head.weight", "head.bias"}
    torch.optim.SGD(whole.parameters(), lr=0.1)
    whole["head"](vectors[mask]).sum().backward()
    assert layer([])[0].shape == (0, 0, 64)
    assert WordEncoder(folders["base"], device="cpu")([["rome"]])[0].shape == (1, 1, 32)
    with pytest.raises(InputError, match="a list of words as sentence 2"):
        layer([["a"], "b"])
    with pytest.raises(ConfigError, match="words as the unit"):
        WordEncoder(base, unit="pieces")


def test_fine_tuning_takes_paths_and_settings_by_name(folders, tmp_path):
    rows = [f"{example.first},{example.label}" for example in examples_of("single", 40)]
    (tmp_path / "train.csv").write_text("body,label\n" + "\n".join(rows) + "\n")
    with quiet():
        result = bertsmith.finetune(
            folders["base"], "classification", tmp_path / "run", train=tmp_path / "train.csv", seeds=1,
            epochs=1, batch_size=8, max_length=24, text_column="body", device="cpu", precision="fp32",
        )  # fmt: skip
    model = load(tmp_path / "run", device="cpu")
    assert (model.task, model.labels, model.max_length) == ("classification", ("negative", "positive"), 24)
    assert result.report["train_examples"] == 36
    with pytest.raises(ConfigError, match="'epoch'; did you mean 'epochs'"):
        bertsmith.finetune(folders["base"], "spam", tmp_path / "other", epoch=1)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": None}, "the model as a path; found a value of type NoneType"),
        ({"out": 5}, "the run folder as a path; found a value of type int"),
        ({"train": ["a.csv", "b.csv"]}, "a dict as row 1 of train; found a value of type str"),
        ({"dev": b"dev.csv"}, "dev as a path or a table: .*; found a value of type bytes"),
        ({"task": None}, "task must be a text, not None"),
        ({"task": "QA"}, "unknown task 'QA'; use one of 'squad', 'squad2'"),
        ({"seeds": 0}, "seeds must be at least 1 and at most 1,000, not 0"),
        ({"seeds": -1}, "seeds must be at least 1 and at most 1,000, not -1"),
        ({"seeds": 1.5}, "seeds must be a whole number, not 1.5"),
        ({"seeds": True}, "seeds must be a whole number, not True"),
        ({"limit": "5"}, "limit must be a whole number, not '5'"),
        ({"limit": 0}, "limit must be at least 1, not 0"),
        ({"search": True, "trials": "3"}, "trials must be a whole number, not '3'"),
        ({"map_labels": "0=negative"}, "map_labels must be a map from a text to a text, not '0=negative'"),
        ({"metric": 5}, "metric must be a text, not 5"),
        ({"epochs": "three"}, "epochs must be a number, not 'three'"),
        ({"epochs": None}, "epochs must be a number, not None"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, not 2.5"),
        ({"calibrate": "yes"}, "calibrate must be true or false, not 'yes'"),
        ({"text_column": 5}, "text_column must be a text, not 5"),
        ({"continue_on": "train.csv", "continue_steps": "3"}, "continue_steps must be a whole number, not '3'"),
        ({"label_column": "text"}, "a column of its own for each text and for the label in .*; found 'text' twice"),
    ],
)
def test_a_wrong_type_is_refused_before_anything_is_written(folders, tmp_path, options, message):
    rows = [f"{example.first},{example.label}" for example in examples_of("single", 20)]
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    usual = {"source": folders["base"], "task": "classification", "out": tmp_path / "run", "seeds": 1, "epochs": 1}
    with pytest.raises(BertsmithError, match=message):
        bertsmith.finetune(**{**usual, "train": tmp_path / "train.csv", **options})
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


def test_a_wrong_type_in_pre_training_is_refused(tmp_path):
    for options in ({"steps": "5"}, {"steps": 1e3}, {"minutes": "x"}, {"max_length": "a", "steps": 5}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))} must be "):
            bertsmith.pretrain(tmp_path / "corpus", tmp_path / "run", size="tiny", **options)


def test_a_source_that_is_not_a_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BertsmithError, match="found an empty folder"):
        load(tmp_path / "empty")
    for number in range(7):
        (tmp_path / "empty" / f"{number}.txt").touch()
    with pytest.raises(BertsmithError, match=r"found other files \(0.txt, 1.txt, 2.txt, 3.txt, 4.txt, ...\)"):
        load(tmp_path / "empty")
    for source in (None, 5, [], b"model"):
        with pytest.raises(InputError, match="the model as a path; found a value of type"):
            load(source)


def test_a_device_of_torch_is_a_device(folders, base):
    torch_device = load(folders["base"], device=torch.device("cpu"))
    np.testing.assert_array_equal(torch_device.embed(["anna"]), base.embed(["anna"]))
    with pytest.raises(ConfigError, match="a device: auto, cpu, cuda or cuda:N; found '5'"):
        load(folders["base"], device=5)


def test_a_setting_that_names_a_folder_may_be_a_path(tmp_path: Path) -> None:
    from bertsmith.base.core.settings import split_settings
    from bertsmith.training.pretraining.settings import PretrainingRunSettings

    settings = split_settings({"init": tmp_path}, [PretrainingRunSettings])
    assert settings == {PretrainingRunSettings: {"init": str(tmp_path)}}
