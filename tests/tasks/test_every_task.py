"""Every named task, from its official file to the score of a trained model."""

import json
import math
from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import FORMS
from bertsmith.tasks.datasets.glue import GLUE
from bertsmith.tasks.specs import named_tasks
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSettings
from bertsmith.tasks.task_data import glue_tests, task_files
from tasks.task_samples import TOKENIZER, write_base_model
from written_files import file_with

COUNT = 8
TEXTS = ("the good film", "a bad plot", "it was great", "one poor film")
MNLI_HEADER = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
    "sentence1 sentence2 label1 gold_label"
)
GLUE_HEADERS = {
    "sst-2": "sentence label",
    "mrpc": "Quality #1_ID #2_ID #1_String #2_String",
    "sts-b": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "qqp": "id qid1 qid2 question1 question2 is_duplicate",
    "mnli": MNLI_HEADER,
    "mnli-mm": MNLI_HEADER,
    "qnli": "index question sentence label",
    "rte": "index sentence1 sentence2 label",
    "wnli": "index sentence1 sentence2 label",
}
TEXT_COLUMNS = {"sentence", "sentence1", "sentence2", "question", "question1", "question2", "#1 String", "#2 String"}
LABEL_COLUMNS = {"label", "gold_label", "Quality", "is_duplicate", "score"}


def glue_file(name: str) -> str:
    labels = GLUE[name].labels or ("0.0", "2.5", "5.000")
    if name == "cola":
        return "".join(f"gj04\t{labels[row % 2]}\t*\t{TEXTS[row % 4]}\n" for row in range(COUNT))
    header = [column.replace("_ID", " ID").replace("_S", " S") for column in GLUE_HEADERS[name].split()]
    rows = [
        [
            TEXTS[row % 4]
            if column in TEXT_COLUMNS
            else labels[row % len(labels)]
            if column in LABEL_COLUMNS
            else f"{row}"
            for column in header
        ]
        for row in range(COUNT)
    ]
    return "".join("\t".join(cells) + "\n" for cells in (header, *rows))


def nli_file(language: str) -> str:
    header = ["language"] * bool(language) + ["gold_label", "sentence1", "sentence2", "pairID"]
    rows = [
        [language] * bool(language) + [named_tasks.NLI_LABELS[row % 3], TEXTS[row % 4], TEXTS[(row + 1) % 4], f"{row}"]
        for row in range(COUNT)
    ]
    return "".join("\t".join(cells) + "\n" for cells in (header, *rows))


def squad_file(name: str) -> str:
    questions = [
        {"id": f"{row}", "question": "who ?", "answers": [{"text": "anna", "answer_start": 4}]} for row in range(COUNT)
    ]
    if name == "squad2":
        questions = [
            {**question, "answers": question["answers"] if row % 2 else [], "is_impossible": row % 2 == 0}
            for row, question in enumerate(questions)
        ]
    paragraphs = [{"context": "the anna film .", "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


def choice_file(name: str) -> str:
    rows = range(COUNT)
    if name == "codah":
        return "".join(f"o\tthe film\tit was\ta plot\tgood .\tbad .\t{row % 4}\n" for row in rows)
    if name == "swag":
        header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
        return header + "".join(f"{n},v,{n},the film it,the film,it,gold,was,good,bad,poor,{n % 4}\n" for n in rows)
    return "context,ending0,ending1,label\n" + "".join(f"the film,was good,was bad,{row % 2}\n" for row in rows)


def table_file(name: str) -> str:
    labels = {"classification": ("a", "b"), "multi-label": ("a", "a,b", "b"), "regression": ("0.5", "1.5", "2.5")}
    column = "labels" if name == "multi-label" else "label"
    names = labels.get(name) or named_tasks.PRESETS[name]
    rows = (f"{TEXTS[row % 4]}\t{names[row % len(names)]}\n" for row in range(COUNT))
    return f"text\t{column}\n" + "".join(rows)


def write_file(name: str, folder: Path) -> Path:
    """A file with a few examples in the task's official format."""
    if name in GLUE:
        suffix, text = "tsv", glue_file(name)
    elif name in named_tasks.NLI:
        suffix, text = ("txt", nli_file("")) if name == "snli" else ("tsv", nli_file("de"))
    elif name in named_tasks.QUESTIONS:
        suffix, text = "json", squad_file(name)
    elif name in named_tasks.CHOICES:
        suffix, text = "tsv" if name == "codah" else "csv", choice_file(name)
    elif name in named_tasks.RANKED:
        rows = [
            {"context": [TEXTS[row % 4], f"row {row}"], "response": f"{TEXTS[row % 4]} {row}"} for row in range(COUNT)
        ]
        suffix, text = "jsonl", "".join(json.dumps(row) + "\n" for row in rows)
    elif name == "reranking":
        rows = [
            {"query": TEXTS[row % 4], "docs": [TEXTS[row % 4], TEXTS[(row + 1) % 4]], "labels": [1, 0]}
            for row in range(COUNT)
        ]
        suffix, text = "jsonl", "".join(json.dumps(row) + "\n" for row in rows)
    elif name == "patents":
        codes = ("B63H", "B63B; H04M", "H04M")
        rows = [f"{row}\t1. {TEXTS[row % 4]}\t{codes[row % 3]}\n" for row in range(COUNT)]
        suffix, text = "tsv", "patent_id\tclaims\tcpc_ids\n" + "".join(rows)
    elif name == "relations":
        spans = [{"start": 4, "end": 8, "label": "FILM"}, {"start": 12, "end": 15, "label": "VERB"}]
        records = ({"text": "the film it was", "spans": spans, "label": "ab"[row % 2]} for row in range(COUNT))
        suffix, text = "jsonl", "".join(json.dumps(record) + "\n" for record in records)
    elif name in FORMS:
        cells = {
            "similarity": (
                "sentence1 sentence2 score",
                lambda row: (TEXTS[row % 4], TEXTS[(row + 1) % 4], f"{row % 5}.0"),
            ),
            "pairs": ("anchor positive", lambda row: (TEXTS[row % 4], TEXTS[(row + 1) % 4])),
            "triplets": ("anchor positive negative", lambda row: tuple(TEXTS[(row + n) % 4] for n in range(3))),
            "texts": ("text", lambda row: (TEXTS[row % 4],)),
        }
        header, cells_of = cells[name]
        rows = ["\t".join(header.split()), *("\t".join(cells_of(row)) for row in range(COUNT))]
        suffix, text = "tsv", "\n".join(rows) + "\n"
    elif name in named_tasks.WRITTEN:
        tree = "(S (NP (DT {}) (JJ {})) (NN {}))" if name == named_tasks.PARSING else "{2}"
        rows = (f"{text}\t{tree.format(*text.split())}\n" for text in TEXTS * (COUNT // len(TEXTS)))
        suffix, text = "tsv", "source\ttarget\n" + "".join(rows)
    elif name in named_tasks.EXTRACTED:
        rows = (json.dumps({"source": [*TEXTS, text], "target": text}) + "\n" for text in TEXTS * (COUNT // len(TEXTS)))
        suffix, text = "jsonl", "".join(rows)
    elif name == "coreference":
        rows = []
        for number in range(COUNT):
            text, spans = f"anna met bert {TEXTS[number % 2]}", {"pronoun": [5, 8], "candidates": [[0, 4], [9, 13]]}
            rows.append(json.dumps({"text": text, **spans, "answer": number % 2}) + "\n")
        suffix, text = "jsonl", "".join(rows)
    elif name in named_tasks.MARKED:
        record = {"tokens": ["anna", "rome", "was"], "entities": [[0, 1, "PER"], [0, 2, "GROUP"]]}
        suffix, text = "jsonl", (json.dumps(record) + "\n") * COUNT
    elif name in named_tasks.TAGS:
        tag = "B-PER" if name == "ner" else "NOUN"
        other = "O" if name == "ner" else "VERB"
        suffix, text = "conll", f"-DOCSTART- -X- {other}\n\n" + f"anna NNP {tag}\nwas VBD {other}\n\n" * COUNT
    else:
        suffix, text = "tsv", table_file(name)
    folder.mkdir(exist_ok=True)
    return file_with(folder / f"examples.{suffix}", text)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


@pytest.mark.parametrize("name", [name for name in named_tasks.TASK_NAMES if name != "ax"])
def test_a_task_goes_from_its_file_to_its_score(name: str, base: str, tmp_path: Path) -> None:
    path = write_file(name, tmp_path)
    dev = path
    if name == "texts":  # which have no gold
        dev = write_file("pairs", tmp_path / "dev")
    spec, data = task_files.read_task(name, path, dev, settings=TaskSettings(max_length=32, stride=8))
    assert len(data.train) == len(data.dev) == COUNT
    settings = FinetuningSettings(batch_size=COUNT, epochs=1, device="cpu", precision="fp32")
    if name == named_tasks.PARSING:  # which needs pieces for brackets and labels
        base = write_base_model(tmp_path / "base", more=("(", ")", "s", "np", "##p"))
    job = FinetuningJob.prepare(base, spec, data, settings, RecipeSettings())
    result = job.train_once(tmp_path / "run", seed=1)
    assert result.steps == 1
    predictor = load_predictor(tmp_path / "run" / "model", device="cpu")
    scores, predictions = predictor.evaluate(data.dev)
    assert len(predictions) == COUNT
    assert scores.keys() == result.scores.keys() >= {spec.metric, *spec.metrics}
    assert all(map(math.isfinite, scores.values()))
    assert scores == pytest.approx(result.scores, abs=1e-6)


def test_the_diagnostic_set_is_for_prediction_only(tmp_path: Path) -> None:
    path = file_with(tmp_path / "AX.tsv", "index\tsentence1\tsentence2\n0\tthe film\tthe plot\n")
    assert [example.second for example in glue_tests.read_test("ax", path)] == ["the plot"]
    with pytest.raises(InputError, match="which is test data only"):
        task_files.read_task("ax", path, path)


@pytest.mark.parametrize("second", ["", "\tb b b"])
def test_a_text_that_is_too_long_is_named_with_its_line(tmp_path: Path, second: str) -> None:
    path, long = tmp_path / "a.tsv", "a " * 40
    names = "text\ttext2\tlabel" if second else "text\tlabel"
    rows = [f"a{second}\tx", f"b{second}\ty", f"{long}{second}\tx", f"{long}{second}\ty"]
    path.write_text("\n".join([names, *rows]) + "\n", encoding="utf-8")
    settings = TaskSettings(max_length=32, long_text="error")
    spec, data = task_files.read_task("classification", path, path, settings=settings)
    expected = f"at most 32 tokens in line 4 of '{path}', .*the first of 2 such examples"
    with pytest.raises(InputError, match=expected):
        task_for(spec).encode(data.train, TOKENIZER)
