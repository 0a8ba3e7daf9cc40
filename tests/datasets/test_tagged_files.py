"""Tagged sentences in the formats that people bring: the same annotations give the same words and tags."""

import json
from pathlib import Path
from xml.sax.saxutils import escape

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets.marked_texts import MarkedSpan, words_of
from bertsmith.tasks.datasets.spans import read_spans
from bertsmith.tasks.datasets.tagged_files import read_tagged
from bertsmith.tasks.metrics.entities import convert_tags
from bertsmith.tasks.task_data.task_files import read_examples, read_task
from written_files import file_with

Document = tuple[str, list[MarkedSpan]]
LINES = ("Ann sings .", "In Oslo , Bo 𝄞 sang .", "Größe & <Maß> !")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@st.composite
def documents(draw: st.DrawFn) -> list[Document]:
    """Texts of one or two lines, with spans of whole words that do not overlap."""
    result = []
    for _ in range(draw(st.integers(1, 3))):
        lines = draw(st.lists(st.sampled_from(LINES), min_size=2, max_size=2))
        text = "\n".join(lines)
        offsets = words_of(text).offsets
        spans, first = [], 0
        while first < len(offsets):
            length = draw(st.integers(0, 2))
            last = min(first + length, len(offsets)) - 1
            in_one_line = "\n" not in text[offsets[first][0] : offsets[last][1]] if length else False
            if length and in_one_line:
                spans.append(MarkedSpan(offsets[first][0], offsets[last][1], draw(st.sampled_from(["PER", "LOC"]))))
            first += max(length, 1)
        result.append((text, spans))
    return result


def as_spans(folder: Path, drawn: list[Document]) -> Path:
    path = folder / "a.jsonl"
    records = [{"text": text, "spans": [list(span) for span in spans]} for text, spans in drawn]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def as_prodigy(folder: Path, drawn: list[Document]) -> Path:
    path = folder / "a.jsonl"
    records = [
        {"text": text, "tokens": [{"text": text, "id": 0}], "spans": [span._asdict() for span in spans]}
        for text, spans in drawn
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def as_words_of_text(folder: Path, drawn: list[Document]) -> Path:
    path = folder / "a.jsonl"
    records = [
        {"text": text, "tokens": text.split(), "spans": [span._asdict() for span in spans]} for text, spans in drawn
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def as_brat(folder: Path, drawn: list[Document]) -> Path:
    for number, (text, spans) in enumerate(drawn):
        (folder / f"{number}.txt").write_bytes(text.encode())
        lines = [
            f"T{index}\t{label} {start} {end}\t{text[start:end]}\n"
            for index, (start, end, label) in enumerate(spans, 1)
        ]
        (folder / f"{number}.ann").write_text("".join(lines) + "#1\tAnnotatorNotes T1\tsure\n", encoding="utf-8")
    return folder


def as_pubtator(folder: Path, drawn: list[Document]) -> Path:
    path = folder / "a.pubtator"
    parts = []
    for number, (text, spans) in enumerate(drawn):
        title, abstract = text.split("\n")
        lines = [f"{number}|t|{title}", f"{number}|a|{abstract}"]
        lines += [f"{number}\t{start}\t{end}\t{text[start:end]}\t{label}\tID" for start, end, label in spans]
        parts.append("\n".join([*lines, f"{number}\tCID\tD1\tD2"]))
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def bioc_document(number: int, text: str, spans: list[MarkedSpan]) -> dict[str, object]:
    annotations = [
        {
            "id": str(index),
            "infons": {"type": label},
            "text": text[start:end],
            "locations": [{"offset": 100 + start, "length": end - start}],
        }
        for index, (start, end, label) in enumerate(spans)
    ]
    return {"id": str(number), "passages": [{"offset": 100, "text": text, "annotations": annotations}]}


def as_bioc_json(folder: Path, drawn: list[Document]) -> Path:
    path = folder / "a.json"
    documents = [bioc_document(number, *document) for number, document in enumerate(drawn)]
    path.write_text(json.dumps({"source": "x", "documents": documents}, indent=1), encoding="utf-8")
    return path


def as_bioc_xml(folder: Path, drawn: list[Document]) -> Path:
    parts = []
    for number, (text, spans) in enumerate(drawn):
        annotations = "".join(
            f'<annotation id="{index}"><infon key="type">{label}</infon><location offset="{100 + start}" '
            f'length="{end - start}"/><text>{escape(text[start:end])}</text></annotation>'
            for index, (start, end, label) in enumerate(spans)
        )
        passage = f"<offset>100</offset><text>{escape(text)}</text>{annotations}"
        parts.append(f"<document><id>{number}</id><passage>{passage}</passage></document>")
    path = folder / "a.xml"
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n'
    path.write_text(f"{head}<collection><source/>{''.join(parts)}</collection>", encoding="utf-8")
    return path


def as_parquet(folder: Path, drawn: list[Document]) -> Path:
    records = [
        {"text": text, "entities": [{"start": start, "end": end, "label": label} for start, end, label in spans]}
        for text, spans in drawn
    ]
    kind = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("label", pa.string())]))
    pq.write_table(
        pa.Table.from_pylist(records, pa.schema([("text", pa.string()), ("entities", kind)])), folder / "a.parquet"
    )
    return folder / "a.parquet"


@pytest.mark.parametrize(
    "write", [as_prodigy, as_words_of_text, as_brat, as_pubtator, as_bioc_json, as_bioc_xml, as_parquet]
)
@settings(max_examples=25)
@given(drawn=documents())
def test_spans_are_the_same_in_every_format(tmp_path_factory: pytest.TempPathFactory, write, drawn) -> None:
    wanted = read_spans(as_spans(tmp_path_factory.mktemp("spans"), drawn)).examples
    examples = read_tagged("ner", write(tmp_path_factory.mktemp("other"), drawn)).examples
    assert [(example.words, example.tags, example.document) for example in examples] == [
        (example.words, example.tags, example.document) for example in wanted
    ]


SENTENCES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["Ann", "'s", "New", "York", ".", "é", '"']), st.sampled_from(TAGS)),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)


def as_columns(folder: Path, sentences) -> Path:
    path = folder / "a.conll"
    path.write_text(
        "\n".join("".join(f"{word}\t{tag}\n" for word, tag in rows) for rows in sentences), encoding="utf-8"
    )
    return path


def as_conllu(folder: Path, sentences) -> Path:
    lines = ["# global.columns = ID FORM CORPUS:NER"]
    for number, rows in enumerate(sentences):
        lines += [f"# sent_id = {number}", "#text"]
        for index, (word, tag) in enumerate(rows, start=1):
            lines += [f"{index}-{index + 1}\t{word}{word}\t_"] if index < len(rows) else []
            lines += [f"{index}\t{word}\t{tag}", f"{index}.1\tempty\t_"]
        lines.append("")
    return file_with(folder / "a.conllup", "\n".join(lines) + "\n")


def as_word_table(folder: Path, sentences) -> Path:
    rows = [
        {"Sentence #": f"Sentence: {number}" if not index else None, "Word": word, "POS": "X", "Tag": tag}
        for number, sentence in enumerate(sentences)
        for index, (word, tag) in enumerate(sentence)
    ]
    pd.DataFrame(rows).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def as_word_rows(folder: Path, sentences) -> Path:
    rows = [
        {"sentence_id": number, "token": word, "ner_tag": tag}
        for number, sentence in enumerate(sentences)
        for word, tag in sentence
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "a.parquet")
    return folder / "a.parquet"


def as_records(folder: Path, sentences) -> Path:
    records = [
        {"id": "x", "tokens": [word for word, _ in rows], "ner_tags": [tag for _, tag in rows]} for rows in sentences
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder / "a.jsonl"


def as_numbered_records(folder: Path, sentences) -> Path:
    features = {"ner_tags": {"feature": {"names": list(TAGS), "_type": "ClassLabel"}, "_type": "List"}}
    table = pa.Table.from_pylist(
        [{"tokens": [word for word, _ in rows], "ner_tags": [TAGS.index(tag) for _, tag in rows]} for rows in sentences]
    ).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize("write", [as_conllu, as_word_table, as_word_rows, as_records, as_numbered_records])
@settings(max_examples=25)
@given(sentences=SENTENCES)
def test_tags_are_the_same_in_every_format(tmp_path_factory: pytest.TempPathFactory, write, sentences) -> None:
    wanted = read_tagged("ner", as_columns(tmp_path_factory.mktemp("columns"), sentences)).examples
    examples = read_tagged("ner", write(tmp_path_factory.mktemp("other"), sentences)).examples
    assert [(example.words, example.tags) for example in examples] == [
        (example.words, example.tags) for example in wanted
    ]


CONLLU = """# newdoc id = a
# sent_id = 1
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No

# newdoc id = b
# sent_id = 2
1\tSue\tSue\tPROPN\t_\t_\t2\tnsubj\t_\t_
2\tlikes\tlike\tVERB\t_\t_\t0\troot\t_\t_
2.1\tlikes\tlike\tVERB\t_\t_\t_\t_\t1:x\t_
3\t_\t_\tSYM\t_\t_\t2\tobj\t_\t_

"""


def test_words_of_conllu_are_its_syntactic_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    path = file_with(tmp_path / "a.txt", CONLLU)
    first, second = read_tagged("pos", path).examples
    assert (first.words, first.tags) == (("Vamos", "nos", "a", "el", "mar"), ("VERB", "PRON", "ADP", "DET", "NOUN"))
    assert (second.words, second.tags) == (("Sue", "likes", "_"), ("PROPN", "VERB", "SYM"))
    assert (first.document, second.document) == (0, 1)
    notices = capsys.readouterr().err
    assert "read as CoNLL-U, words from FORM, tags from UPOS" in notices
    assert "3 lines of CoNLL-U left out, with ranges (3-4) and empty nodes (8.1), which are not words" in notices
    named = read_tagged("pos", path, word_column=1, tag_column=7).examples
    assert named[0].tags == ("root", "obj", "case", "det", "obl")
    with pytest.raises(InputError, match=r"one column of entities in .*--tag-column"):
        read_tagged("ner", path)
    path.write_text(CONLLU.replace("PROPN", "_"), encoding="utf-8")
    with pytest.raises(InputError, match="found '_', which means that it is not annotated"):
        read_tagged("pos", path)
    lines = CONLLU.splitlines(keepends=True)
    inside = next(number for number, line in enumerate(lines) if line.startswith("3\t")) + 1
    path.write_text("".join([*lines[:inside], "# a remark\n", *lines[inside:]]), encoding="utf-8")
    with pytest.raises(InputError, match=f"a word in line {inside + 1} of .*comments only before a sentence"):
        read_tagged("pos", path)


@pytest.mark.parametrize(
    ("letters", "target"),
    [({"E": "L", "S": "U"}, "BILOU"), ({"I": "M"}, "BMES"), ({"I": "M", "S": "W"}, "BMEWO")],
)
@settings(max_examples=25)
@given(sentences=SENTENCES)
def test_other_names_of_iobes_are_read_as_it(
    tmp_path_factory: pytest.TempPathFactory, letters: dict[str, str], target: str, sentences
) -> None:
    iobes = [convert_tags([tag for _, tag in rows], "IOB2", "IOBES") for rows in sentences]
    iobes += [["B-PER", "I-PER", "E-PER", "S-LOC"]]
    words = [[word for word, _ in rows] for rows in sentences] + [["a", "b", "c", "d"]]
    renamed = [[letters.get(tag[0], tag[0]) + tag[1:] for tag in tags] for tags in iobes]
    path = tmp_path_factory.mktemp("scheme") / "a.conll"
    as_columns(path.parent, [list(zip(*pair, strict=True)) for pair in zip(words, renamed, strict=True)])
    assert [list(example.tags) for example in read_examples("ner", path).examples] == iobes
    known = {tag for tags in renamed for tag in tags}
    assert [list(example.tags) for example in read_examples("ner", path, known=sorted(known)).examples] == renamed


@pytest.mark.parametrize("target", ["IOB1", "IOB2", "IOBES"])
def test_dev_tags_get_the_scheme_of_the_training_tags(tmp_path: Path, target: str) -> None:
    def columns(name: str, *sentences: str) -> Path:
        text = "\n".join("".join(f"w{n} {tag}\n" for n, tag in enumerate(tags.split())) for tags in sentences)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    gold = ["B-PER I-PER O B-LOC".split(), "B-LOC B-LOC I-LOC".split()]
    dev = columns("dev.conll", *(" ".join(convert_tags(tags, "IOB2", target)) for tags in gold))
    for scheme in ("IOB1", "IOB2", "IOBES"):
        train = columns("train.conll", *(" ".join(convert_tags(tags, "IOB2", scheme)) for tags in gold))
        _, data = read_task("ner", train, dev)
        assert [list(example.tags) for example in data.dev] == [convert_tags(tags, "IOB2", scheme) for tags in gold]


def brat(folder: Path, text: str, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_bytes(text.encode())
    (folder / "a.ann").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def test_spans_of_brat_with_gaps_and_inside_others_are_left_out_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "University of Oslo\nand of New\nYork"
    folder = brat(
        tmp_path / "a",
        text,
        "T1\tLOC 14 18\tOslo",
        "T2\tORG 0 18\tUniversity of Oslo",
        "T3\tORG 0 10;23 25\tUniversity of",
        "T4\tLOC 26 29;30 34\tNew York",
        "T5\tPLACE 0 18\tUniversity of Oslo",
        "E1\tEvent:T1",
        "*\tEquiv T1 T2",
    )
    (folder / "b.txt").write_text("not annotated", encoding="utf-8")
    file = read_tagged("ner", folder)
    (example,) = file.examples
    assert example.tags == ("B-ORG", "I-ORG", "I-ORG", "O", "O", "B-LOC", "I-LOC")
    assert file.skipped == ((f"'{folder / 'b.txt'}'", "no .ann file"),)
    notices = capsys.readouterr().err
    assert "2 spans shared words with a longer or an earlier one and left out" in notices
    assert "'LOC' 'Oslo'" in notices
    assert "'PLACE' 'University of Oslo'" in notices
    assert "1 span with a gap left out" in notices
    assert "only spans of text are read, not 1 event, 1 relation" in notices


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T1\tLOC 0 3\tOslo", r"expected 'Oslo' at 0 to 3 in line 1 of .*; found 'In '"),
        ("T1 LOC 3 7 Oslo", "expected an annotation of brat in line 1 of"),
        (f"T1\tLOC 3 {'9' * 5000}\tOslo", "expected an annotation of brat in line 1 of"),
        ("T1\tLOC 3 99\t", "expected spans of at least one of the 7 characters in"),
    ],
)
def test_an_annotation_of_brat_that_does_not_fit_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_tagged("ner", brat(tmp_path / "a", "In Oslo", line))


def test_annotations_of_brat_need_their_text(tmp_path: Path) -> None:
    folder = brat(tmp_path / "a", "In Oslo")
    (folder / "a.txt").unlink()
    with pytest.raises(InputError, match=r"expected the text of .* in 'a.txt', next to it; found nothing there"):
        read_tagged("ner", folder)
    with pytest.raises(InputError, match="found marked spans; use --task ner"):
        read_tagged("pos", brat(tmp_path / "b", "In Oslo", "T1\tLOC 3 7\tOslo"))
    with pytest.raises(ConfigError, match="omit --word-column"):
        read_tagged("ner", tmp_path / "b", word_column=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1|t|Ann sings\n1|a|So.\n1\t0\t3\tBob\tPER\n", "expected 'Bob' at 0 to 3 in line 3 of .*; found 'Ann'"),
        (
            "1|t|Ann sings\n1|a|So.\n2\t0\t3\tAnn\tPER\n",
            "expected a title, an abstract or a mention of one document in line 3",
        ),
        ("1|t|Ann sings\n1\t0\t\u00b2\tAnn\tPER\n", "or a mention of one document in line 2"),
        ("1|t|Ann sings\n1\t0\t3\tAnn\n", "or a mention of one document in line 2"),
        ("1|t|Ann sings\n2|t|So.\n", "expected a title, an abstract or a mention of one document in line 2"),
    ],
)
def test_a_line_of_pubtator_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_tagged("ner", tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "Bob"}, "expected 'Bob' at 0 to 3 in passage 1 of document 1 of"),
        ({"locations": []}, "a location and an infon 'type' of each annotation in passage 1"),
        ({"infons": ["type"]}, "a location and an infon 'type' of each annotation in passage 1"),
        ({"infons": {}}, "a location and an infon 'type' of each annotation in passage 1"),
        ({"locations": [{"offset": "x", "length": 3}]}, "a whole number as 'offset' in passage 1"),
    ],
)
def test_an_annotation_of_bioc_that_does_not_fit_is_refused(tmp_path: Path, change, message: str) -> None:
    document = bioc_document(0, "Ann sings", [MarkedSpan(0, 3, "PER")])
    document["passages"][0]["annotations"][0] |= change
    (tmp_path / "a.json").write_text(json.dumps({"documents": [document]}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_tagged("ner", tmp_path / "a.json")


def test_damaged_or_unsafe_xml_is_refused(tmp_path: Path) -> None:
    for text, message in (
        ("<collection><document>", "expected XML in"),
        ('<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><collection/>', "XML without entities of its own"),
        ("<collection/>", "expected texts with spans in"),
    ):
        (tmp_path / "a.xml").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_tagged("ner", tmp_path / "a.xml")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a"], "ner_tags": [3]}, "expected names of tags under 'ner_tags' in line 1 of .*; found 3"),
        ({"tokens": ["a"], "tags": [[0, 1, "PER"]]}, "spans of words are read by --task nested-ner"),
        ({"tokens": ["a", "b"], "ner_tags": ["O"]}, "expected a tag for each of 2 words in line 1 of .*; found 1 tag"),
        ({"tokens": ["a", ""], "ner_tags": ["O", "O"]}, "expected words as texts in line 1 of .*; found ''"),
        ({"tokens": ["a"], "chunks": ["O"]}, "a list of tags under 'ner_tags' or 'ner' or 'tags' in line 1"),
    ],
)
def test_a_record_of_words_that_does_not_fit_is_refused(tmp_path: Path, record: object, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_tagged("ner", tmp_path / "a.jsonl")


def test_records_and_tables_of_words_need_no_tags_where_none_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a"]}\n', encoding="utf-8")
    (tmp_path / "a.csv").write_text("sentence_id,word\n1,a\n2,b\n", encoding="utf-8")
    for name, count in (("a.jsonl", 1), ("a.csv", 2)):
        examples = read_tagged("ner", tmp_path / name, gold=False).examples
        assert (examples[0].words, examples[0].tags) == (("a",), None)
        assert len(examples) == count
    with pytest.raises(InputError, match=r"a column of the tags in .*--label-column"):
        read_tagged("ner", tmp_path / "a.csv")


@pytest.mark.parametrize("task", ["ner", "pos"])
def test_records_of_texts_need_no_tags_where_none_are_read(tmp_path: Path, task: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "In Oslo."}\n', encoding="utf-8")
    (example,) = read_tagged(task, tmp_path / "a.jsonl", gold=False).examples
    assert (example.words, example.tags) == (("In", "Oslo", "."), None)


def test_a_row_of_a_table_of_words_without_a_word_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.csv", "Sentence #,Word,POS,Tag\nSentence: 1,a,X,O\n,,X,O\n")
    with pytest.raises(InputError, match=r"a word in column 'Word' in line 3 of .*; found an empty cell"):
        read_tagged("ner", path)
    path.write_text("Sentence #,Word,POS,Tag\nSentence: 1,a,X,O\n,,,\n,b,Y,B-PER\n", encoding="utf-8")
    file = read_tagged("pos", path)
    assert (file.examples[0].words, file.examples[0].tags) == (("a", "b"), ("X", "Y"))
    assert file.skipped == ((f"line 3 of '{path}'", "no text in any column"),)


def test_folders_of_brat_in_the_data_are_read_with_every_text_as_it_is_stated(real_data: Path) -> None:
    file = read_tagged("ner", real_data / "ner_nested" / "brat" / "corpora")
    assert len(file.examples) == 100
