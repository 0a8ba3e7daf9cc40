"""Extractive summaries: oracle, windows, layers, files; the contract of every task is in `test_contract.py`."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bertsmith
from bertsmith.base.core.errors import ConfigError, CutWarning, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import choose
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.window_reader import SentenceLayers
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.layers import sinusoidal_positions
from bertsmith.models.parts.transformer import Pass, TransformerEncoder
from bertsmith.tasks.datasets.documents import read_documents
from bertsmith.tasks.datasets.examples import DocumentExample, document_of, usual_sentences
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.metrics.extracts import best_sentences, oracle_sentences
from bertsmith.tasks.metrics.rouge import rouge
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for
from bertsmith.tasks.specs.task import CHOSEN, ORACLE, TaskSpec
from bertsmith.text.documents.sentences import sentence_spans, split_sentences
from tasks.task_samples import BAD, CONFIG, GOOD, PEOPLE, PLACES, PLAIN, SPECS, TOKENIZER, examples_of, write_base_model

TASK = "extractive-summarization"
APART, TOGETHER = "sentences", "sentences of a text"
CPU = choose("cpu", "fp64")
SPECIAL = 2  # tokens around a sentence


def model_of(kind: str) -> EncoderForTask:
    return EncoderForTask(TransformerEncoder(CONFIG, seed=3), task_for(SPECS[kind]).head, seed=4).double().eval()


def spec_with(kind: str, **settings: Any) -> TaskSpec:
    return dataclasses.replace(SPECS[kind], settings=dataclasses.replace(SPECS[kind].settings, **settings))


def document(*sentences: str, **fields: Any) -> DocumentExample:
    return document_of(sentences, id="0", location="text 1", **fields)


def mean_of(model: EncoderForTask, window: list[str], number: int) -> torch.Tensor:
    """The vector of a sentence that is read with others."""
    parts = [[TOKENIZER.vocabulary.cls_id, *TOKENIZER.encode(text), TOKENIZER.vocabulary.sep_id] for text in window]
    hidden = model.encoder(Batch.from_rows([np.array(list(itertools.chain.from_iterable(parts)))]))
    return hidden.split([len(part) for part in parts])[number].mean(0)


@pytest.mark.parametrize("kind", [APART, TOGETHER])
@torch.no_grad()
def test_sentences_are_read_in_windows_and_then_with_all_sentences_of_their_text(kind: str) -> None:
    model, spec = model_of(kind), SPECS[kind]
    texts = [*examples_of(kind, 5), document(*(f"the {word} film it was" for word in (*GOOD, *BAD, *PLACES)))]
    features = task_for(spec).encode(texts, TOKENIZER)
    logits = task_logits(model, features, CPU)[:, 0]
    assert features.rows_per_unit.max() > 1
    done = 0
    for text in texts:
        windows: list[list[str]] = [[]]
        for sentence in text.texts:
            filled = sum(len(TOKENIZER.encode(other)) + SPECIAL for other in [*windows[-1], sentence])
            windows = (
                [*windows, [sentence]]
                if filled > spec.settings.max_length
                else [*windows[:-1], [*windows[-1], sentence]]
            )
        vectors = torch.stack([mean_of(model, window, n) for window in windows for n in range(len(window))])
        if kind == TOGETHER:
            (layer,) = model.get_submodule("reader").layers
            states = vectors + sinusoidal_positions(len(vectors), vectors.shape[1]).double()
            blank = np.zeros(len(vectors), dtype=np.int64)
            batch = Batch.from_flat(blank, blank, [len(blank)])
            vectors = layer(states, Pass(batch=batch, noise=None, trace=None, dtype=states.dtype), None, "0")
        expected = model.output_layer(vectors)[:, 0]
        np.testing.assert_allclose(logits[done : done + len(expected)], expected.numpy(), atol=1e-5)
        done += len(expected)
    assert done == len(logits)


def test_a_sentence_in_another_window_matters_only_with_layers_over_sentences() -> None:
    long = " ".join(PLAIN[:8])
    first, other = document(f"{long} good", f"{long} bad"), document(f"{long} good", f"{long} oslo")
    scores = {}
    for kind in (APART, TOGETHER):
        features = task_for(SPECS[kind]).encode([first, other], TOKENIZER)
        assert features.rows_per_unit.tolist() == [2, 2]
        scores[kind] = task_logits(model_of(kind), features, CPU)[[0, 2], 0]
    assert scores[APART][0] == pytest.approx(scores[APART][1], abs=1e-7)
    assert abs(scores[TOGETHER][0] - scores[TOGETHER][1]) > 1e-6


def test_layers_give_each_sentence_its_own_state_whatever_the_order_of_the_rows() -> None:
    layers, draw = SentenceLayers(2, 8, 0.0).double().eval(), torch.Generator().manual_seed(1)
    vectors = torch.randn(7, 8, generator=draw, dtype=torch.float64)
    from bertsmith.models.parts.batch import WindowsOfTexts

    # Two texts: rows 0 and 2 are the second and the first window of one, row 1 is the only one of the other.
    windows = WindowsOfTexts.of(np.array([0, 1, 0]), np.array([1, 0, 0]), np.array([2, 1]))
    with torch.no_grad():
        states = layers(vectors, windows, (2, 3, 2), None)
        alone = layers(vectors[2:5], WindowsOfTexts.of(np.array([0]), np.array([0]), np.array([1])), (3,), None)
        in_order = layers(
            torch.cat([vectors[5:], vectors[:2]]),
            WindowsOfTexts.of(np.array([0]), np.array([0]), np.array([1])),
            (4,),
            None,
        )
    torch.testing.assert_close(states[2:5], alone)
    torch.testing.assert_close(torch.cat([states[5:], states[:2]]), in_order)


def test_windows_have_whole_sentences_and_all_of_them() -> None:
    draw = generator(0, "sentences")
    texts = [
        document(*(" ".join(draw.choice(PLAIN, int(draw.integers(1, 13)))) for _ in range(int(draw.integers(1, 9)))))
        for _ in range(40)
    ]
    features = task_for(SPECS[TOGETHER]).encode(texts, TOKENIZER)
    rows, most = features.rows, SPECS[TOGETHER].settings.max_length
    assert rows.lengths.max() <= most
    assert not rows.truncated
    assert features.num_read == sum(len(text.sentences) for text in texts)
    assert (rows.token_ids[features.read] == TOKENIZER.vocabulary.cls_id).all()
    words = [id for text in texts for sentence in text.texts for id in TOKENIZER.encode(sentence)]
    special = [TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id]
    assert rows.token_ids[~np.isin(rows.token_ids, special)].tolist() == words
    # No window could take the first sentence of the next one.
    for row in np.flatnonzero(np.diff(features.example_of_row) == 0).tolist():
        first = np.flatnonzero(np.searchsorted(rows.offsets, features.read, side="right") - 1 == row + 1)[0]
        length = np.diff([*features.read, len(rows.token_ids)])[first]
        assert rows.lengths[row] + length > most


def test_a_sentence_that_is_too_long_is_cut_and_counted_or_refused() -> None:
    long = document("the film", " ".join(PLAIN * 2))
    features = task_for(SPECS[TOGETHER]).encode([long], TOKENIZER)
    assert (features.rows.cut_by_row.tolist(), features.rows.lengths.tolist()) == ([0, 8], [4, 14])
    strict = task_for(spec_with(TOGETHER, long_text="error"))
    with pytest.raises(InputError, match="at most 14 tokens, special tokens included in text 1; found more"):
        strict.encode([long], TOKENIZER)
    with pytest.raises(InputError, match="at most 14 tokens"):
        strict.encode([document(" ".join(PLAIN), "the film it was")], TOKENIZER)
    assert len(strict.encode([document("the film", "it was")], TOKENIZER).rows) == 1
    with pytest.raises(
        ConfigError, match="long_text of extractive summaries, which read every sentence, must be windows"
    ):
        task_for(spec_with(APART, long_text="head")).check([long], gold=False)


@given(st.text(alphabet="aB. \n\t!?。\u00a0", max_size=60))
def test_spans_are_the_sentences_at_their_places(text: str) -> None:
    spans = sentence_spans(text)
    parts = [text[start:end] for start, end in spans]
    assert all(part == part.strip() and part for part in parts)
    assert [start for start, _ in spans] == sorted({start for start, _ in spans})
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert "".join("".join(parts).split()) == "".join(text.split())
    if "\n" not in text:
        assert [" ".join(part.split()) for part in parts] == split_sentences(text)


def closeness(sentences: list[str], chosen: tuple[int, ...], references: list[str]) -> float:
    text = " ".join(sentences[number] for number in chosen)
    return max(rouge(text, [reference])["rouge1"] + rouge(text, [reference])["rouge2"] for reference in references)


def test_the_oracle_takes_the_best_step_each_time_and_one_sentence_is_the_best_of_all() -> None:
    draw, words = generator(0, "oracle"), [*GOOD, *BAD, *PEOPLE]
    reached = []
    for _ in range(60):
        sentences = [" ".join(draw.choice(words, 4)) for _ in range(5)]
        references = [" ".join(draw.choice(words, 6)) for _ in range(2)]
        best: tuple[int, ...] = ()
        for most in (1, 2, 3):
            rest = [tuple(sorted((*best, number))) for number in range(5) if number not in best]
            values = [closeness(sentences, option, references) for option in rest]
            if max(values) > (closeness(sentences, best, references) if best else 0.0) and len(best) == most - 1:
                best = rest[values.index(max(values))]
            assert oracle_sentences(sentences, references, most) == best
        every = [
            closeness(sentences, some, references)
            for size in (1, 2, 3)
            for some in itertools.combinations(range(5), size)
        ]
        reached.append(closeness(sentences, best, references) / max(every))
        assert reached[-1] <= 1
    assert np.mean(reached) > 0.95
    assert oracle_sentences(["the film", "it was"], ["oslo"], 2) == ()


def test_a_sentence_that_repeats_three_words_of_a_better_one_is_left_out() -> None:
    sentences = ["Anna met Bert in Rome.", "In Oslo it rained.", "anna MET bert, in Rome?", "A film."]
    scores = [0.8, 0.2, 0.9, 0.5]
    assert best_sentences(scores, sentences, 2, 0) == (0, 2)
    assert best_sentences(scores, sentences, 2, 3) == (2, 3)
    assert best_sentences(scores, sentences, 9, 3) == (1, 2, 3)
    assert best_sentences([0.5] * 4, sentences, 2, 6) == (0, 1)


def test_targets_are_the_oracle_or_what_the_file_says() -> None:
    task = task_for(SPECS[APART])
    sentences = ("the film was good", "anna in oslo")
    by_target = task.encode([document(*sentences, targets=("oslo anna",))], TOKENIZER).targets
    by_file = task.encode([document(*sentences, targets=("oslo anna",), chosen=(0,))], TOKENIZER).targets
    assert (by_target.tolist(), by_file.tolist()) == ([0, 1], [1, 0])
    assert task.encode([document(*sentences)], TOKENIZER).targets is None


def test_as_many_sentences_as_targets_usually_have_unless_the_settings_say_so() -> None:
    examples = [document("a", "b", "c", targets=(text,)) for text in ("One.", "It was. It is.", "Two. Or. Three.")]
    assert usual_sentences(examples) == 2
    assert spec_for(TASK, examples).settings.sentences == 2
    assert spec_for(TASK, examples, dataclasses.replace(default_settings(TASK), sentences=3)).settings.sentences == 3
    assert usual_sentences([document("a", "b", targets=("x",), chosen=(0, 1))]) == 2
    assert usual_sentences([]) == 1


ROWS = {
    "a.jsonl": '{"source": ["A film. ", "It was."], "source_labels": [0, 1]}\n'
    '{"source": "Oslo. Rome is. ", "source_labels": [1, 0]}\n',
    "b.jsonl": '{"document": "A film. It was.", "summary": "It was."}\n'
    '{"document": ["Oslo.", "Rome is."], "summary": ["Oslo."]}\n',
    "c.tsv": "A film. It was.\tIt was.\nOslo. Rome is.\tOslo.\n",
}


@pytest.mark.parametrize("name", ROWS)
def test_sources_are_texts_or_lists_and_sentences_may_be_marked(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ROWS[name], encoding="utf-8")
    examples = read_documents(tmp_path / name).examples
    assert [(row.texts, row.targets) for row in examples] == [
        (("A film.", "It was."), ("It was.",)),
        (("Oslo.", "Rome is."), ("Oslo.",)),
    ]
    assert [row.chosen for row in examples] == ([(1,), (0,)] if name == "a.jsonl" else [None, None])
    bare = read_documents(tmp_path / name, gold=False).examples
    assert [(row.targets, row.chosen) for row in bare] == [((), None)] * 2


def test_rows_without_a_choice_are_listed_and_marks_must_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [("Oslo. Rome.", "A."), ("One.", "One."), (" ", "A."), (["A.", " "], "A."), ([], "A."), ("Oslo. Rome.", "")]
    path.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows), encoding="utf-8")
    read = read_documents(path, training=True)
    assert len(read.examples) == 1
    reasons = [
        "one sentence",
        "no text in column 'source'",
        "an empty sentence",
        "no sentence",
        "no text in column 'target'",
    ]
    assert list(read.skipped) == [(f"line {n} of '{path}'", reason) for n, reason in enumerate(reasons, start=2)]
    assert len(read_documents(path).examples) == 2, "one sentence can be scored"
    for marks, shown in (([1], "1 value"), ([1, 2], "2 values"), ("x", "'x'")):
        path.write_text(json.dumps({"source": ["A.", "B."], "source_labels": marks}) + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=f"(a 0 or 1 for each of 2 sentences|JSON) in line 1 of .*{shown}"):
            read_documents(path)
    path.write_text('{"source": ["A.", "B."], "source_labels": [0, 0]}\n', encoding="utf-8")
    with pytest.raises(InputError, match="1 row, none of them: no right sentence in the first"):
        read_documents(path)
    for source in ('["A.", 3]', "[1, 2]"):
        path.write_text(f'{{"source": {source}, "target": "A."}}\n', encoding="utf-8")
        with pytest.raises(InputError, match="a text, or a list of texts, as 'source' in line 1"):
            read_documents(path)


def write_stories(path: Path, count: int, seed: int) -> None:
    """Texts of a few sentences, of which the one with a person and a place is the summary."""
    draw = generator(seed, "stories")
    lines = []
    for _ in range(count):
        sentences = [f"{' '.join(draw.choice(PLAIN, 3))} {draw.choice(BAD)}." for _ in range(int(draw.integers(3, 6)))]
        right = int(draw.integers(1, len(sentences)))
        sentences[right] = f"{draw.choice(PEOPLE)} was {draw.choice(GOOD)} in {draw.choice(PLACES)}."
        lines.append(json.dumps({"source": " ".join(sentences), "target": sentences[right].strip(".")}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def test_a_training_finds_the_right_sentences_and_is_compared_with_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_base_model(tmp_path / "base")
    write_stories(tmp_path / "train.jsonl", 96, 1)
    write_stories(tmp_path / "dev.jsonl", 24, 2)
    result = bertsmith.finetune(
        base,
        TASK,
        tmp_path / "run",
        train=tmp_path / "train.jsonl",
        dev=tmp_path / "dev.jsonl",
        max_length=32,
        sentence_layers=1,
        epochs=12,
        learning_rate=3e-3,
        seeds=1,
        precision="fp32",
    )
    report = result.report
    systems = {system["name"]: system["scores"]["rougeL"] for system in report["baselines"]}
    assert list(systems) == list(CHOSEN)
    assert systems[ORACLE] == pytest.approx(1)
    assert report["scores"]["rougeL"]["mean"] > 0.9 > max(systems[name] for name in CHOSEN if name != ORACLE)
    assert "better_baseline" not in report, "the oracle is compared with nothing"
    metadata = json.loads((tmp_path / "run" / "model" / "bertsmith.json").read_text(encoding="utf-8"))
    assert metadata["baseline"]["name"] in CHOSEN[:2]
    assert metadata["baseline"]["p_value"] < 0.05
    assert "oracle sentences" in bertsmith.write_report([tmp_path / "run"]).read_text(encoding="utf-8")
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert 'extract(["A text."])' in card
    assert "longer texts in windows" in card

    model = bertsmith.load(tmp_path / "run", device="cpu")
    assert (model.task, model.abilities[0]) == ("extraction", "extract")
    text = "the film bad.\n\n  anna was good\nin oslo. it was awful."
    (answer,) = model.extract([text])
    (chosen,) = answer.sentences
    assert (chosen.text, chosen.index) == ("anna was good\nin oslo.", 1)
    assert text[chosen.start : chosen.end] == chosen.text
    assert chosen.score == answer.scores[1] == max(answer.scores)
    assert (answer.line(), len(answer.scores)) == ("anna was good in oslo.", 3)
    (two,) = model.extract([["the film bad.", "anna was good in oslo.", "it was awful."]], sentences=2)
    assert [sentence.index for sentence in two.sentences][-1] >= 1
    assert len(two.sentences) == 2
    joined = "the film bad. anna was good in oslo. it was awful."
    assert all(joined[sentence.start : sentence.end] == sentence.text for sentence in two.sentences)
    assert model.extract(["", " \n"])[1].to_dict() == {"text": "", "sentences": [], "scores": [], "cut_tokens": 0}
    with pytest.warns(CutWarning, match="texts truncated to the length the model reads: 1"):
        model.extract(["the " * 40])
    with pytest.raises(ConfigError, match="unknown option of extract: 'beam'"):
        model.extract([text], beam=2)
    with pytest.raises(InputError, match="an empty one as number 2 of 2"):
        model.extract([["the film", " "]])
    pytest.importorskip("onnxruntime")
    bertsmith.convert(tmp_path / "run", tmp_path / "onnx", to="onnx", data=tmp_path / "dev.jsonl")
    (exported,) = bertsmith.load(tmp_path / "onnx").extract([text])
    assert exported.sentences[0].index == chosen.index
    np.testing.assert_allclose(exported.scores, answer.scores, atol=1e-5)
    scores = bertsmith.evaluate(tmp_path / "run", tmp_path / "dev.jsonl").scores
    assert scores["rougeL"] == pytest.approx(report["scores"]["rougeL"]["mean"], abs=1e-6)
