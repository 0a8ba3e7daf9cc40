"""The official files of GLUE, its submissions and its score."""

import re
from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.glue import GLUE, glue_average, read_glue, write_submission

MNLI_HEADER = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
    "sentence1 sentence2"
).split()
STSB_HEADER = "index genre filename year old_index source1 source2 sentence1 sentence2".split()

HEADERS = {
    "cola": (None, "index sentence"),
    "sst-2": ("sentence label", "index sentence"),
    "mrpc": ("Quality|#1 ID|#2 ID|#1 String|#2 String", "index|#1 ID|#2 ID|#1 String|#2 String"),
    "sts-b": ("|".join([*STSB_HEADER, "score"]), "|".join(STSB_HEADER)),
    "qqp": ("id qid1 qid2 question1 question2 is_duplicate", "id question1 question2"),
    "mnli": ("|".join([*MNLI_HEADER, "label1", "gold_label"]), "|".join(MNLI_HEADER)),
    "mnli-mm": ("|".join([*MNLI_HEADER, *(f"label{n}" for n in range(1, 6)), "gold_label"]), "|".join(MNLI_HEADER)),
    "qnli": ("index question sentence label", "index question sentence"),
    "rte": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
    "wnli": ("index sentence1 sentence2 label", "index sentence1 sentence2"),
    "ax": (None, "index sentence1 sentence2"),
}
# Text A, text B, label: columns of BERT's original code, counted from 0; -1 is the last one.
TRAIN_COLUMNS = {
    "cola": (3, None, 1),
    "sst-2": (0, None, 1),
    "mrpc": (3, 4, 0),
    "sts-b": (7, 8, -1),
    "qqp": (3, 4, 5),
    "mnli": (8, 9, -1),
    "mnli-mm": (8, 9, -1),
    "qnli": (1, 2, -1),
    "rte": (1, 2, -1),
    "wnli": (1, 2, -1),
}
TEST_COLUMNS = TRAIN_COLUMNS | {
    "cola": (1, None, None),
    "sst-2": (1, None, None),
    "qqp": (1, 2, None),
    "ax": (1, 2, None),
}
TRAINED = sorted(TRAIN_COLUMNS)


def write(path: Path, rows: list[list[str]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def header(key: str, *, labelled: bool) -> list[str] | None:
    names = HEADERS[key][0 if labelled else 1]
    return names and names.split("|" if "|" in names else None)


def labelled_file(folder: Path, key: str, label: str | None = None) -> Path:
    """A training file with one row, whose cells contain their column numbers."""
    names = header(key, labelled=True)
    cells = [f"cell {number}" for number in range(len(names) if names else 4)]
    cells[TRAIN_COLUMNS[key][2]] = label or (*GLUE[key].labels, "2.500")[0]
    return write(folder / "train.tsv", [names, cells] if names else [cells])


@pytest.mark.parametrize("key", TRAINED)
def test_texts_and_labels_stand_where_the_original_code_looks(tmp_path: Path, key: str) -> None:
    first, second, _ = TRAIN_COLUMNS[key]
    example = read_glue(GLUE[key], labelled_file(tmp_path, key), labelled=True).examples[0]
    assert example.first == f"cell {first}"
    assert example.second == (None if second is None else f"cell {second}")
    assert example.label == (2.5 if key == "sts-b" else GLUE[key].labels[0])
    assert GLUE[key].pair == (second is not None)


@pytest.mark.parametrize("key", GLUE)
def test_test_files_have_texts_and_numbers_and_no_labels(tmp_path: Path, key: str) -> None:
    first, second, _ = TEST_COLUMNS[key]
    names = header(key, labelled=False)
    path = write(tmp_path / "test.tsv", [names, ["7", *(f"cell {number}" for number in range(1, len(names)))]])
    example = read_glue(GLUE[key], path, labelled=False).examples[0]
    assert example.first == f"cell {first}"
    assert example.second == (None if second is None else f"cell {second}")
    assert (example.id, example.label, example.location) == ("7", None, f"line 2 of '{path}'")


def test_labels_stand_in_the_order_of_the_original_code() -> None:
    assert GLUE["mnli"].labels == GLUE["ax"].labels == ("contradiction", "entailment", "neutral")
    assert GLUE["qnli"].labels == GLUE["rte"].labels == ("entailment", "not_entailment")
    assert all(GLUE[key].labels == ("0", "1") for key in ("cola", "sst-2", "mrpc", "qqp", "wnli"))
    assert GLUE["sts-b"].labels == ()


def test_metrics_are_the_official_ones_with_that_of_the_table_first() -> None:
    metrics = {key: task.metrics for key, task in GLUE.items() if task.metrics != ("accuracy",)}
    assert metrics == {
        "cola": ("matthews",),
        "mrpc": ("f1", "accuracy"),
        "sts-b": ("spearman", "pearson"),
        "qqp": ("f1", "accuracy"),
        "ax": ("matthews",),
    }
    assert GLUE["mrpc"].metric == "f1"
    assert {task.trained_as for task in (GLUE["mnli-mm"], GLUE["ax"])} == {"mnli"}


def test_quotes_and_carriage_returns_are_part_of_the_text(tmp_path: Path) -> None:
    names = header("mrpc", labelled=True)
    content = "\ufeff" + "\t".join(names) + '\r\n1\t5\t6\t" He said so .\tShe said " no " .\r\n0\t7\t8\ta \r b\tc "\r\n'
    (tmp_path / "train.tsv").write_bytes(content.encode())
    examples = read_glue(GLUE["mrpc"], tmp_path / "train.tsv", labelled=True).examples
    assert [(example.first, example.second, example.label) for example in examples] == [
        ('" He said so .', 'She said " no " .', "1"),
        ("a \r b", 'c "', "0"),
    ]


def test_broken_rows_of_qqp_are_skipped_and_listed_and_those_of_others_are_errors(tmp_path: Path) -> None:
    rows = [
        header("qqp", labelled=True),
        ["0", "1", "2", "a", "b", "1"],
        ["1", "3", "4", "half"],
        ["2", "5", "6", "c", "d", "0"],
    ]
    path = write(tmp_path / "train.tsv", rows)
    file = read_glue(GLUE["qqp"], path, labelled=True)
    assert [example.first for example in file.examples] == ["a", "c"]
    assert file.skipped == ((f"line 3 of '{path}'", "4 columns instead of 6"),)
    broken = write(tmp_path / "test.tsv", [header("qqp", labelled=False), ["0", "a"]])
    with pytest.raises(InputError, match="expected 3 columns of QQP in line 2"):
        read_glue(GLUE["qqp"], broken, labelled=False)
    short = write(tmp_path / "rte.tsv", [header("rte", labelled=True), ["0", "a", "b"]])
    with pytest.raises(InputError, match="expected 4 columns of RTE in line 2"):
        read_glue(GLUE["rte"], short, labelled=True)


def test_an_empty_text_is_skipped_in_training_and_kept_for_the_server(tmp_path: Path) -> None:
    path = write(tmp_path / "train.tsv", [["sentence", "label"], [" ", "0"], ["a", "1"]])
    file = read_glue(GLUE["sst-2"], path, labelled=True)
    assert ([example.id for example in file.examples], file.skipped) == (
        ["1"],
        ((f"line 2 of '{path}'", "empty text"),),
    )
    path = write(tmp_path / "test.tsv", [["index", "sentence"], ["0", ""], ["1", "a"]])
    assert [example.id for example in read_glue(GLUE["sst-2"], path, labelled=False).examples] == ["0", "1"]


@pytest.mark.parametrize(
    ("key", "label", "found"),
    [
        ("rte", "maybe", "one of entailment, not_entailment; found 'maybe'"),
        ("rte", "0", "one of entailment, not_entailment; found '0'"),
        ("cola", "2", "one of 0, 1; found '2'"),
        ("sts-b", "5.5", "a number from 0 to 5 in line 2"),
        ("sts-b", "nan", "a number from 0 to 5 in line 2"),
        ("sts-b", "good", "found 'good'"),
        ("sts-b", "0_1", "found '0_1'"),
    ],
)
def test_a_label_of_another_task_is_an_error(tmp_path: Path, key: str, label: str, found: str) -> None:
    path = labelled_file(tmp_path, key, label)
    with pytest.raises(InputError, match=re.escape(found)) as error:
        read_glue(GLUE[key], path, labelled=True)
    assert f"'{path}'" in str(error.value)


def test_a_file_of_another_task_is_an_error(tmp_path: Path) -> None:
    qnli = labelled_file(tmp_path, "qnli")
    with pytest.raises(InputError, match=r"expected the official TSV file of RTE .* no column 'sentence1' among"):
        read_glue(GLUE["rte"], qnli, labelled=True)
    with pytest.raises(InputError, match=r"expected 4 columns of CoLA in line 1 .*; found 2"):
        read_glue(GLUE["cola"], labelled_file(tmp_path, "sst-2"), labelled=True)
    test = write(tmp_path / "test.tsv", [header("rte", labelled=False), ["0", "a", "b"]])
    with pytest.raises(InputError, match=r"no column 'label' among .* test files have no labels"):
        read_glue(GLUE["rte"], test, labelled=True)
    for content, message in (
        ('{"data": []}', "found JSON"),
        ("index\tsentence1\tsentence2\tlabel\n", "no examples below"),
    ):
        (tmp_path / "bad.tsv").write_text(content)
        with pytest.raises(InputError, match=message):
            read_glue(GLUE["rte"], tmp_path / "bad.tsv", labelled=True)
    with pytest.raises(InputError, match="the diagnostic set, which is test data only"):
        read_glue(GLUE["ax"], qnli, labelled=True)


def test_submissions_have_the_names_and_columns_of_the_server(tmp_path: Path) -> None:
    files = {key: write_submission(task, [], [], tmp_path).name for key, task in GLUE.items()}
    names = "CoLA SST-2 MRPC STS-B QQP MNLI-m MNLI-mm QNLI RTE WNLI AX".split()
    assert list(files.values()) == [f"{name}.tsv" for name in names]
    path = write_submission(GLUE["rte"], ["0", "1"], ["not_entailment", "entailment"], tmp_path / "new")
    assert path.read_bytes() == b"index\tprediction\n0\tnot_entailment\n1\tentailment\n"
    path = write_submission(GLUE["sts-b"], ["0", "1", "2"], [-0.25, 2.34567, 5.5], tmp_path)
    assert path.read_bytes() == b"index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"
    with pytest.raises(AssertionError, match="of RTE"):
        write_submission(GLUE["rte"], ["0"], ["neutral"], tmp_path)


def test_the_score_counts_each_task_once() -> None:
    scores = {key: dict.fromkeys(task.metrics, 60.0) for key, task in GLUE.items() if key != "ax"}
    assert glue_average(scores, with_wnli=True) == glue_average(scores, with_wnli=False) == 60.0
    scores |= {"mnli": {"accuracy": 80.0}, "mrpc": {"f1": 90.0, "accuracy": 70.0}, "wnli": {"accuracy": 15.0}}
    # MNLI 70, MRPC 80, the six others 60; and WNLI 15.
    assert glue_average(scores, with_wnli=False) == pytest.approx((6 * 60 + 70 + 80) / 8)
    assert glue_average(scores, with_wnli=True) == pytest.approx((6 * 60 + 70 + 80 + 15) / 9)
    for key in ("rte", "mnli-mm"):
        with pytest.raises(InputError, match=f"expected the accuracy of {key} for the GLUE score"):
            glue_average({name: values for name, values in scores.items() if name != key}, with_wnli=False)
    without_wnli = {name: values for name, values in scores.items() if name != "wnli"}
    assert glue_average(without_wnli, with_wnli=False) == glue_average(scores, with_wnli=False)


REAL_COUNTS = {
    "cola": (8_551, 1_043, 1_063),
    "sst-2": (67_349, 872, 1_821),
    "mrpc": (3_668, 408, 1_725),
    "sts-b": (5_749, 1_500, 1_379),
    "qnli": (None, 5_463, 5_463),
    "rte": (2_490, 277, 3_000),
    "wnli": (635, 71, 146),
}


@pytest.mark.parametrize("key", REAL_COUNTS)
def test_the_official_files_have_their_exact_counts(real_data: Path, key: str) -> None:
    task = GLUE[key]
    for part, count in zip(("train", "dev", "test"), REAL_COUNTS[key], strict=True):
        if count is None:
            continue
        file = read_glue(task, real_data / "glue" / task.title / f"{part}.tsv", labelled=part != "test")
        assert (len(file.examples), file.skipped) == (count, ())
        assert all(example.first and (example.second is not None) == task.pair for example in file.examples)
        if part == "train":
            assert count == task.train_size
        if part == "test":
            assert [example.id for example in file.examples] == [str(number) for number in range(count)]
        elif task.labels:
            assert {example.label for example in file.examples} == set(task.labels)


def test_the_diagnostic_set_has_its_exact_count(real_data: Path) -> None:
    path = real_data / "glue/diagnostic/diagnostic.tsv"
    assert len(read_glue(GLUE["ax"], path, labelled=False).examples) == 1104
