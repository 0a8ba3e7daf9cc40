"""From tables of events to a folder of codes: readers, visits, vocabulary, tree."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bertsmith
from bertsmith import BertsmithError, InputError, VocabularyError
from bertsmith.recipes.codes.folder import build_codes, read_codes_folder
from bertsmith.recipes.codes.tables import EventSettings, read_subjects, read_tree
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.visits import Subject, Visit, read_visits, split_subjects, write_visits
from bertsmith.text.codes.vocabulary import Code, CodeVocabulary
from codes.sample_events import write_events, write_tree

ROWS = ["subject,time,code,kind", "b,2020-02-01,X,dx", "a,2020-01-05,Y,dx", "a,2020-01-02,X,dx", "a,2020-01-02,R,rx"]
READ = [
    Subject("b", (Visit("2020-02-01", (("dx", "X"),)),)),
    Subject("a", (Visit("2020-01-02", (("dx", "X"), ("rx", "R"))), Visit("2020-01-05", (("dx", "Y"),)))),
]


def read(path: Path, **settings: object) -> list[Subject]:
    return read_subjects([path], EventSettings(**settings))[0]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_events_are_read_alike_from_csv_tsv_json_lines_and_parquet(tmp_path: Path) -> None:
    header, *rows = (row.split(",") for row in ROWS)
    records = [dict(zip(header, row, strict=True)) for row in rows]
    assert read(written(tmp_path / "a.csv", ROWS)) == READ
    assert read(written(tmp_path / "a.tsv", [row.replace(",", "\t") for row in ROWS])) == READ
    assert read(written(tmp_path / "a.jsonl", [json.dumps(record) for record in records])) == READ
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == READ
    write_visits(tmp_path / "visits.jsonl", READ)
    assert read(tmp_path / "visits.jsonl") == READ == list(read_visits(tmp_path / "visits.jsonl"))
    two = [written(tmp_path / "1.csv", ROWS[:3]), written(tmp_path / "2.csv", [ROWS[0], *ROWS[3:]])]
    assert read_subjects(two, EventSettings())[0] == READ


def test_events_of_a_visit_or_a_day_or_a_moment_form_a_visit(tmp_path: Path) -> None:
    rows = ["user,timestamp,item,order", "u,2020-01-01T10:00,tea,1", "u,2020-01-01T09:00,tea,1", "u,2020-01-01,cup,2"]
    path = written(tmp_path / "a.csv", rows)
    by_order = [Visit("2020-01-01", (("code", "cup"),)), Visit("2020-01-01T09:00", (("code", "tea"),))]
    assert [visit.codes for visit in read(path)[0].visits] == [(("code", item),) for item in ("cup", "tea", "tea")]
    assert list(read(path, visit_column="order")[0].visits) == by_order
    assert read(path, by_day=True)[0].visits == (Visit("2020-01-01", (("code", "cup"), ("code", "tea"))),)
    numbers = written(tmp_path / "b.csv", ["machine,time,event", "m,10,stop", "m,9.5,start"])
    assert [visit.time for visit in read(numbers)[0].visits] == ["9.5", "10"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,May,X,dx", "line 4 of .*found 'May'"),
        ("a,2_020,X,dx", "line 4 of .*found '2_020'"),
        ("a,17,X,dx", "expected a date as time, as in line 2"),
        (",2020-01-01,X,dx", "a subject in line 4"),
        ("a,2020-01-01,,dx", "a code in line 4 .*an empty cell"),
        ("a,2020-01-01,X,", "a kind in line 4"),
    ],
)
def test_a_bad_row_is_refused_with_its_file_and_line(tmp_path: Path, row: str, message: str) -> None:
    path = written(tmp_path / "a.csv", [*ROWS[:3], row])
    with pytest.raises(InputError, match=message) as refusal:
        read(path)
    assert str(path) in str(refusal.value)


def test_visits_in_json_lines_are_in_the_order_of_time_if_they_have_times(tmp_path: Path) -> None:
    visits = [{"time": "2", "codes": ["B"]}, {"time": 1, "codes": ["A", "A"]}]
    path = written(tmp_path / "a.jsonl", [json.dumps({"patient": "p", "visits": visits})])
    (subject,) = read(path)
    assert [(visit.time, visit.codes) for visit in subject.visits] == [("1", (("code", "A"),)), ("2", (("code", "B"),))]
    for visit in visits:
        del visit["time"]
    written(path, [json.dumps({"subject": "p", "visits": visits})])
    assert [visit.codes for visit in read(path)[0].visits] == [(("code", "B"),), (("code", "A"),)]


def test_settings_about_events_and_a_late_column_of_kinds_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [json.dumps({"subject": "p", "visits": [{"time": None, "codes": ["A"]}]})])
    assert read(path)[0].visits[0].time == ""
    for settings in ({"by_day": True}, {"time_column": "when"}):
        option = "--" + next(iter(settings)).replace("_", "-")
        with pytest.raises(BertsmithError, match=f"{option} needs tables"):
            read(path, **settings)
    first = {"subject": "p", "time": "1", "code": "A"}
    rows = [json.dumps(row) for row in (first, {**first, "kind": "dx"})]
    with pytest.raises(InputError, match=r"columns of the first record in line 2 .*'kind' too"):
        read(written(tmp_path / "b.jsonl", rows))
    counted = written(tmp_path / "c.csv", ["subject,time,code,visits", "p,1,A,3"])
    assert read(counted)[0].visits[0].codes == (("code", "A"),)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"visits": [{"codes": ["A"]}]}, "a record .*'subject'|a record"),
        ({"subject": "p", "visits": []}, "at least one visit in line 1"),
        ({"subject": "p", "visits": [{"codes": "A"}]}, "codes as .* in visit 1 in line 1"),
        (
            {"subject": "p", "visits": [{"time": "1", "codes": ["A"]}, {"codes": ["B"]}]},
            "the times of all visits in line 1",
        ),
        ({"subject": "p", "visits": [{"time": "soon", "codes": ["A"]}]}, "the times of all visits in line 1"),
    ],
)
def test_a_bad_record_of_visits_is_refused_with_its_line(tmp_path: Path, record: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(written(tmp_path / "a.jsonl", [json.dumps(record)]))


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", ["subject,when,code", "a,1,X"])
    with pytest.raises(InputError, match="the column 'time'"):
        read(path)
    assert read(path, time_column="when")[0].name == "a"
    with pytest.raises(InputError, match="the column 'then'"):
        read(path, time_column="then")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["code,parent", "a,b", "b,c", "c,a"], "a tree without cycles in line 2 .*a -> b -> c -> a"),
        (["code,parent", "a,top"], "a row for each parent.*line 2.*'top', which has none"),
        (["code,parent", "x,", "y,", "a,x", "a,y"], "one parent of each code in line 5.*'a' below 'y'.*line 4.*'x'"),
        (["code,parent", ",x"], "a code in line 2"),
        (["code,above", "a,x"], "the column 'parent'"),
    ],
)
def test_a_tree_that_is_none_is_refused_with_its_row(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tree([written(tmp_path / "tree.csv", lines)])


def test_a_tree_knows_the_ancestors_of_codes_and_survives_its_file(tmp_path: Path) -> None:
    tree, _ = read_tree([write_tree(tmp_path / "tree.csv")])
    assert tree.ancestors(("diagnosis", "flu")) == (("diagnosis", "illness"),)
    assert tree.ancestors(("diagnosis", "gout")) == tree.ancestors(("medication", "flu")) == ()
    part = tree.part([("diagnosis", "flu")])
    assert len(part) == 2
    part.save(tmp_path / "tree.tsv")
    assert CodeTree.load(tmp_path / "tree.tsv") == part


def test_a_vocabulary_is_in_the_order_of_frequency_and_survives_its_file(tmp_path: Path) -> None:
    vocabulary = CodeVocabulary.of(READ, descriptions={("rx", "R"): "rest"})
    assert [(code.name, code.kind, code.count) for code in vocabulary.codes] == [
        ("X", "dx", 2),
        ("Y", "dx", 1),
        ("R", "rx", 1),
    ]
    assert vocabulary.ids([("dx", "X"), ("rx", "X"), ("rx", "R")]).tolist() == [6, vocabulary.unk_id, 8]
    assert vocabulary.ids_of_kind("dx").tolist() == [6, 7]
    assert vocabulary.code(8) == Code("R", "rx", 1, "rest")
    assert vocabulary.code(5).name == "[>]"
    vocabulary.save(tmp_path / "codes.tsv")
    assert CodeVocabulary.load(tmp_path) == vocabulary
    with pytest.raises(VocabularyError, match="twice"):
        CodeVocabulary([Code("X", "dx"), Code("X", "dx")])
    with pytest.raises(VocabularyError, match="use one of 'dx', 'rx'"):
        vocabulary.ids_of_kind("dy")
    (tmp_path / "codes.tsv").write_text("code\tkind\tcount\tdescription\nX\tdx\n", encoding="utf-8")
    with pytest.raises(VocabularyError, match="line 2"):
        CodeVocabulary.load(tmp_path)


NAMES = st.text(min_size=1).filter(lambda text: text.strip() == text and not set("\t\n\r") & set(text))
SETS = st.sets(st.tuples(st.sampled_from(["dx", "rx"]), NAMES), min_size=1)


@given(st.lists(SETS, min_size=1), NAMES)
def test_visits_and_vocabularies_survive_their_files(sets: list[set[tuple[str, str]]], name: str) -> None:
    visits = tuple(Visit(str(number), tuple(sorted(codes))) for number, codes in enumerate(sets))
    subjects = [Subject(name, visits)]
    vocabulary = CodeVocabulary.of(subjects)
    with tempfile.TemporaryDirectory() as folder:
        write_visits(Path(folder) / "visits.jsonl", subjects)
        vocabulary.save(Path(folder) / "codes.tsv")
        assert list(read_visits(Path(folder) / "visits.jsonl")) == subjects
        assert read(Path(folder) / "visits.jsonl") == subjects
        assert CodeVocabulary.load(folder) == vocabulary
    counts = [code.count for code in vocabulary.codes]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == sum(map(len, sets))


def test_a_subject_is_in_one_part_of_a_split() -> None:
    subjects = [Subject(str(number), (Visit("", (("code", "X"),)),)) for number in range(20)]
    parts = split_subjects(subjects, [0.1, 0.25], seed=3)
    assert [len(part) for part in parts] == [2, 5, 13]
    assert sorted(subject.name for part in parts for subject in part) == sorted(subject.name for subject in subjects)
    assert parts == split_subjects(subjects, [0.1, 0.25], seed=3) != split_subjects(subjects, [0.1, 0.25], seed=4)
    with pytest.raises(InputError, match="held out"):
        split_subjects(subjects[:2], [0.1, 0.25], seed=3)


def test_a_folder_has_vocabulary_visits_tree_and_summary(tmp_path: Path) -> None:
    events, tree = write_events(tmp_path / "events.csv"), write_tree(tmp_path / "tree.csv")
    summary = build_codes([events], tmp_path / "codes", tree=[tree])
    assert (summary["subjects"], summary["subjects_with_one_visit"], summary["visits"]) == (40, 10, 100)
    assert summary["kinds"]["diagnosis"]["outside_the_tree"] == 1
    assert summary["tree_nodes"] == 4
    folder = read_codes_folder(tmp_path / "codes")
    assert len(folder.vocabulary.codes) == 8
    assert folder.subjects == read_subjects([events], EventSettings())[0]
    with pytest.raises(BertsmithError, match="exists"):
        build_codes([tmp_path / "none.csv"], tmp_path / "codes")  # refused before anything is read
    least = 1 + min(code.count for code in folder.vocabulary.codes)
    rare = bertsmith.build_codes([events], tmp_path / "codes", minimum_count=least, replace=True)
    assert sum(kind["dropped_codes"] for kind in rare["kinds"].values()) >= 2
    assert not (tmp_path / "codes" / "tree.tsv").exists()
    with pytest.raises(BertsmithError, match="lower `minimum_count`"):
        build_codes([events], tmp_path / "none", minimum_count=1000)
    (tmp_path / "codes" / "codes.tsv").write_text("code\tkind\tcount\tdescription\n", encoding="utf-8")
    with pytest.raises(BertsmithError, match="another one"):
        read_codes_folder(tmp_path / "codes")
