"""A corpus without duplicates and boilerplate: what goes, what stays, and that every removal is on record."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.text.corpus import boilerplate, document_urls
from bertsmith.text.corpus import build as corpus_build
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.checks import check_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents import readers, sources
from bertsmith.text.documents.readers import Document
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from corpus.samples import small_tokenizer
from corpus.test_build import content, story, texts
from written_files import file_with

TOKENIZER = small_tokenizer()
HEADER = "Nobody was in the boat, a new story came home.\n"
BY_URL = CorpusSettings(held_out=0, remove_duplicates="url")
NEAR = CorpusSettings(held_out=0.2, remove_duplicates="near", remove_boilerplate=True)


def long_story(number: int) -> str:
    return "".join(f"{number} {number + position} boats of {position * number} rained in.\n" for position in range(9))


def build(folder: Path, text: str, settings: CorpusSettings, **options: Any) -> tuple[dict[str, Any], list[dict]]:
    """The manifest, and the lines of removed.jsonl."""
    path = file_with(folder / "text.txt", text)
    manifest = build_corpus([path], TOKENIZER, folder / "corpus", **vars(settings), replace=True, **options)
    lines = (folder / "corpus" / "removed.jsonl").read_text().splitlines()
    return manifest, [json.loads(line) for line in lines]


def everything(folder: Path) -> list[str]:
    corpus = Corpus.open(folder, verify=True)
    held_out = corpus.held_out(verify=True)
    return texts(corpus) + (texts(held_out) if held_out is not None else [])


def test_nothing_is_removed_unless_asked(tmp_path: Path) -> None:
    path = file_with(tmp_path / "text.txt", "\n".join([story(1), story(1), story(2)]))
    manifest = build_corpus([path], TOKENIZER, tmp_path / "corpus", held_out=0)
    assert manifest["documents"] == 3
    assert "removed" not in manifest
    assert not (tmp_path / "corpus" / "removed.jsonl").exists()
    assert any("--remove-duplicates" in line for line in check_corpus(tmp_path / "corpus").advice())


def test_the_first_of_equal_documents_stays_and_the_others_are_on_record(tmp_path: Path) -> None:
    settings = CorpusSettings(held_out=0, remove_duplicates="exact")
    manifest, lines = build(tmp_path, "\n".join([story(1), story(2), story(1), story(1)]), settings)
    assert [text[:22] for text in everything(tmp_path / "corpus")] == [
        "the boat came home in ",
        "the boat came home in ",
    ]
    assert [(line["document"], line["of_document"], line["reason"]) for line in lines] == [
        (3, 1, "a copy"),
        (4, 1, "a copy"),
    ]
    assert {Path(line["of_source"]).name for line in lines} == {"text.txt"}
    gone = manifest["removed"]["duplicates"]
    assert (gone["documents"], gone["copies"], gone["sentences"]) == (2, 2, 6)
    whole = build_corpus([tmp_path / "text.txt"], TOKENIZER, tmp_path / "all", held_out=0)
    assert gone["tokens"] == sum(line["tokens"] for line in lines) == whole["tokens"] - manifest["tokens"]
    report = check_corpus(tmp_path / "corpus")
    assert report.repeated_documents == 0
    assert (
        f"removed as copies of earlier documents: 2 documents, 6 sentences, {gone['tokens']} tokens" in report.lines()
    )
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == [
        "corpus.json", "inputs.jsonl", "removed.jsonl", "shard-00000.arrow", "vocab.txt",
    ]  # fmt: skip


DIFFERENT = {
    "Chinese": ["它下雨了", "它下雪了", "猫", "犬", "猫 犬", "犬猫"],
    "proteins": [" ".join(f"MKV{chr(65 + number)}LLAGH" for _ in range(9)) for number in range(20)],
    "accents": ["résumé now", "resume now", "résume now"],
    "cut": ["ก" * 200, "ข" * 200, "x" * 200, "y" * 200],
    "header": [f"{number} 猫 was in it , the new story ." for number in ("一", "二", "三")],
}


@pytest.mark.parametrize("settings", [CorpusSettings(held_out=0, remove_duplicates=how) for how in ("exact", "near")])
@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.parametrize("workers", [1, 2])
def test_texts_with_equal_pieces_are_no_copies(
    tmp_path: Path, name: str, settings: CorpusSettings, workers: int
) -> None:
    """What the vocabulary does not know is compared as well: only the copies of each text go."""
    texts = DIFFERENT[name]
    copies = [unicodedata.normalize("NFD", text).upper().replace(" ", "  ") for text in texts]
    documents = [Document(f"text {number}", [text]) for number, text in enumerate([*texts, *copies])]
    manifest = build_corpus(documents, TOKENIZER, tmp_path / "out", **vars(settings), workers=workers)
    assert manifest["documents"] == len(texts)
    lines = [json.loads(line) for line in (tmp_path / "out" / "removed.jsonl").read_text().splitlines()]
    assert [int(line["of_source"].split()[1]) for line in lines] == list(range(len(texts)))
    assert {line["reason"] for line in lines} == {"a copy"}
    assert not any("occur more than once" in line for line in check_corpus(tmp_path / "out").advice())


def test_case_counts_if_the_vocabulary_has_capital_letters(tmp_path: Path) -> None:
    cased = WordPieceTokenizer(TOKENIZER.vocabulary, TextRules(lowercase=False))
    settings = CorpusSettings(held_out=0, remove_duplicates="exact")
    documents = [Document("a", ["it rained"]), Document("b", ["IT RAINED"]), Document("c", ["it  rained"])]
    assert build_corpus(documents, cased, tmp_path / "out", **vars(settings))["documents"] == 2


def test_boilerplate_is_compared_as_text(tmp_path: Path) -> None:
    """Headers with equal pieces are different sentences."""
    headers = [f"{chr(0x4E00 + number)} 猫 was in it , the new story .\n" for number in range(12)]
    settings = CorpusSettings(held_out=0, remove_boilerplate=True)
    manifest, _ = build(tmp_path, "\n".join(header + story(number) for number, header in enumerate(headers)), settings)
    assert manifest["removed"]["boilerplate"]["sentences"] == 0
    manifest, _ = build(tmp_path, "\n".join(headers[0] + story(number) for number in range(12)), settings)
    assert manifest["removed"]["boilerplate"]["sentences"] == 12


def test_no_duplicate_of_a_training_document_is_held_out(tmp_path: Path) -> None:
    stories = [long_story(number) for number in range(40)]
    near = [story.replace(" boats", " homes", 1) for story in stories]
    manifest, lines = build(tmp_path, "\n".join([*stories, *near]), NEAR)
    kept = everything(tmp_path / "corpus")
    assert len(kept) == 40 == len(lines)
    assert sorted(kept) == sorted(TOKENIZER.decode(TOKENIZER.encode(story)) for story in stories)
    assert 2 <= manifest["held_out"]["documents"] <= 20
    assert [overlap.known_grams for overlap in check_corpus(tmp_path / "corpus").overlaps] == [0]
    assert all(line["similarity"] >= 0.8 and line["reason"] == "a near-duplicate" for line in lines)
    assert [line["of_document"] for line in lines] == list(range(1, 41))


def test_sentences_that_many_documents_share_are_removed(tmp_path: Path) -> None:
    """In 12 of them; those in nine stay, and so do short ones and repeats in a single document."""
    rare, refrain = "A new story of nine came home in it.\n", "In 7 boats nobody came home to the story.\n"
    documents = [
        HEADER + (rare if number < 9 else "") + "It rained.\n" + story(number, 2) + (refrain * 15 if not number else "")
        for number in range(12)
    ]
    settings = CorpusSettings(held_out=0, remove_boilerplate=True)
    manifest, lines = build(tmp_path, "\n".join([*documents, HEADER, HEADER.upper()]), settings)
    kept = everything(tmp_path / "corpus")
    assert len(kept) == 12
    assert all("nobody was in the boat" not in text and "it rained ." in text for text in kept)
    assert sum("nine came home" in text for text in kept) == 9
    assert kept[0].count("7 boats") == 15
    gone = manifest["removed"]["boilerplate"]
    assert (gone["least_documents"], gone["different_sentences"], gone["sentences"]) == (10, 1, 14)
    assert (gone["changed_documents"], gone["removed_documents"]) == (14, 2)
    text = "nobody was in the boat , a new story came home ."
    assert gone["most_frequent"] == [{"text": text, "documents": 14, "times": 14}]
    assert [line["reason"] for line in lines] == ["nothing but boilerplate"] * 2 + ["boilerplate"]
    assert [line["document"] for line in lines[:2]] == [13, 14]
    assert f"    in 14 documents: {text}" in check_corpus(tmp_path / "corpus").lines()
    again, _ = build(tmp_path, "\n".join(documents), CorpusSettings(held_out=0, remove_boilerplate=True,
                     boilerplate_documents=9))  # fmt: skip
    assert again["removed"]["boilerplate"]["different_sentences"] == 2


def test_boilerplate_is_the_same_if_a_large_corpus_is_read_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = [f"Nobody was in the boat; {number} came home in it.\n" for number in range(8)]
    text = "\n".join("".join(headers) + story(number) for number in range(10))
    build(tmp_path / "once", text, NEAR)
    monkeypatch.setattr(boilerplate, "MOST_COUNTED", 20)
    file_with(tmp_path / "parts" / "text.txt", text)
    build_corpus([tmp_path / "once" / "text.txt"], TOKENIZER, tmp_path / "parts" / "corpus", **vars(NEAR))
    assert content(tmp_path / "once" / "corpus") == content(tmp_path / "parts" / "corpus")


def test_any_number_of_processes_removes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sources, readers):
        monkeypatch.setattr(module, "BLOCK_BYTES", 300)
    for number in range(12):
        file_with(tmp_path / "in" / f"{number:02}.txt", HEADER + "\n".join([long_story(number % 9), story(number)]))
    for workers in (1, 2):
        build_corpus([tmp_path / "in"], TOKENIZER, tmp_path / str(workers), **vars(NEAR), workers=workers)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    removed = Corpus.open(tmp_path / "1").manifest["removed"]
    assert removed["duplicates"]["documents"] == 3
    assert removed["boilerplate"]["sentences"] == 12


def test_a_single_repeated_line(tmp_path: Path) -> None:
    """One document of a repeated line stays, of many such documents the first; as boilerplate nothing is left."""
    line = "The boat came home in a new story.\n"
    build(tmp_path, line * 50, NEAR)
    assert len(everything(tmp_path / "corpus")) == 2, "the end of the only document is held out"
    manifest, lines = build(tmp_path, f"{line}\n" * 50, CorpusSettings(remove_duplicates="near"))
    assert (manifest["documents"], len(lines)) == (1, 49)
    with pytest.raises(InputError, match="expected text that is not boilerplate; found nothing else: every sentence"):
        build(tmp_path / "new", f"{line}\n" * 50, NEAR)
    assert not (tmp_path / "new" / "corpus").exists()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["text.txt"]


def records(folder: Path, *urls: str | None, name: str = "pages.jsonl") -> Path:
    """A file with a different text for each URL."""
    lines = [{"text": story(number).strip().split("\n"), "url": url} for number, url in enumerate(urls)]
    return file_with(folder / name, "".join(json.dumps(line) + "\n" for line in lines))


def removed(corpus: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (corpus / "removed.jsonl").read_text().splitlines()]


def test_of_documents_with_one_url_the_first_stays(tmp_path: Path) -> None:
    paths = [
        records(tmp_path, "http://a.org/1", None, "http://a.org/2", "HTTP://A.org:80/1/#top", None, "https://a.org/1"),
        records(tmp_path, "http://a.org/2/", "http://a.org/3", name="b.jsonl"),
    ]
    build_corpus(paths, TOKENIZER, tmp_path / "all", held_out=0)
    manifest = build_corpus(paths, TOKENIZER, tmp_path / "corpus", **vars(BY_URL))
    every = everything(tmp_path / "all")
    assert everything(tmp_path / "corpus") == [every[index] for index in (0, 1, 2, 4, 5, 7)]
    lines = removed(tmp_path / "corpus")
    assert [(line["document"], line["of_document"], line["url"]) for line in lines] == [
        (4, 1, "HTTP://A.org:80/1/#top"),
        (1, 3, "http://a.org/2/"),
    ]
    assert [Path(line["of_source"]).name for line in lines] == ["pages.jsonl"] * 2
    assert {line["reason"] for line in lines} == {"the same URL"}
    gone = manifest["removed"]["duplicates"]
    assert gone == {
        "documents": 2,
        "copies": 0,
        "sentences": sum(line["sentences"] for line in lines),
        "tokens": sum(line["tokens"] for line in lines),
        "documents_without_url": 2,
    }
    assert (
        f"removed as documents with the URL of earlier documents: 2 documents (0 exact), {gone['sentences']} sentences,"
        f" {gone['tokens']} tokens; 2 documents without a URL kept"
    ) in check_corpus(tmp_path / "corpus").lines()
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == [
        "corpus.json", "inputs.jsonl", "removed.jsonl", "shard-00000.arrow", "vocab.txt",
    ]  # fmt: skip


def test_copies_with_other_urls_or_without_stay_if_urls_decide(tmp_path: Path) -> None:
    documents = [Document("a", ["It rained."], url) for url in ("http://a", "http://b", "", "", "http://a/")]
    build_corpus(documents, TOKENIZER, tmp_path / "corpus", **vars(BY_URL))
    assert everything(tmp_path / "corpus") == ["it rained ."] * 4
    assert [(line["of_document"], line["copy"]) for line in removed(tmp_path / "corpus")] == [(1, True)]


def test_text_without_a_single_url_is_refused_in_one_line(tmp_path: Path) -> None:
    path = records(tmp_path, None, None, " ")
    for more in ({}, {"remove_boilerplate": True, "boilerplate_documents": 2}):
        settings = CorpusSettings(held_out=0, remove_duplicates="url", **more)
        with pytest.raises(InputError, match=r"column 'url' .*; found none in 3 documents; .*`url_column`"):
            build_corpus([path], TOKENIZER, tmp_path / "corpus", **vars(settings))
    assert [path.name for path in tmp_path.iterdir()] == ["pages.jsonl"]
    renamed = CorpusSettings(held_out=0, remove_duplicates="url", url_column="text")
    with pytest.raises(InputError, match="column 'text'"):
        build_corpus([path], TOKENIZER, tmp_path / "corpus", **vars(renamed))


def test_the_column_with_the_urls_can_be_named(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.jsonl", '{"text": "It rained.", "page": "http://a"}\n' * 3)
    settings = CorpusSettings(held_out=0, remove_duplicates="url", url_column="page")
    manifest = build_corpus([path], TOKENIZER, tmp_path / "corpus", **vars(settings))
    assert manifest["removed"]["duplicates"]["documents"] == 2


def test_parts_of_a_document_that_was_cut_are_no_duplicates_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parts of the first document stay; those of others with its URL are compared with them part by part."""
    monkeypatch.setattr(corpus_build, "MOST_SENTENCES", 4)
    for module in (sources, readers):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(readers, "_form", lambda *_: ("paragraphs", "marks"))
    pages = [("a", story(0, 7)), ("a/", story(0, 7)), ("b", story(1, 7)), ("a", story(0, 4) + story(2, 6))]
    path = file_with(tmp_path / "wiki.txt", "".join(f'<doc url="http://{url}">\n{text}</doc>\n' for url, text in pages))
    whole = build_corpus([path], TOKENIZER, tmp_path / "all", held_out=0)
    assert whole["documents"] == 9
    assert whole["read"]["cut_documents"] == 5
    build_corpus([path], TOKENIZER, tmp_path / "corpus", **vars(BY_URL))
    every = everything(tmp_path / "all")
    assert everything(tmp_path / "corpus") == [*every[:2], *every[4:6]]
    lines = removed(tmp_path / "corpus")
    assert [(line["document"], line["of_document"], line["copy"]) for line in lines] == [
        (3, 1, True),
        (4, 2, True),
        (7, 1, True),
        (8, 2, False),
        (9, 2, False),
    ]


def test_urls_are_compared_after_boilerplate_is_removed(tmp_path: Path) -> None:
    """The first document with the URL is nothing but boilerplate, so the second one stays and the third goes."""
    texts = [HEADER, HEADER + story(1), story(2), *(HEADER + story(number) for number in range(3, 12))]
    urls = ["http://a", "http://a/", "http://A", *[""] * 9]
    documents = [Document("d", text.strip().split("\n"), url) for text, url in zip(texts, urls, strict=True)]
    settings = CorpusSettings(held_out=0, remove_duplicates="url", remove_boilerplate=True)
    manifest = build_corpus(documents, TOKENIZER, tmp_path / "corpus", **vars(settings))
    assert [(line["document"], line["reason"]) for line in removed(tmp_path / "corpus") if "document" in line] == [
        (1, "nothing but boilerplate"),
        (3, "the same URL"),
    ]
    assert manifest["removed"]["duplicates"]["documents_without_url"] == 9
    assert manifest["documents"] == 10


def test_any_number_of_processes_and_of_urls_in_memory_removes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sources, readers):
        monkeypatch.setattr(module, "BLOCK_BYTES", 300)
    for file in range(6):
        urls = [f"http://a.org/{(7 * file + number) % 17}" if number % 4 else None for number in range(12)]
        records(tmp_path / "in", *urls, name=f"{file}.jsonl")
    for workers in (1, 2):
        build_corpus([tmp_path / "in"], TOKENIZER, tmp_path / str(workers), **vars(BY_URL), workers=workers)
        monkeypatch.setattr(document_urls, "_WRITTEN_TOGETHER", 5)
    assert content(tmp_path / "1") == content(tmp_path / "2")
    gone = Corpus.open(tmp_path / "1").manifest["removed"]["duplicates"]
    assert (gone["documents"], gone["documents_without_url"]) == (54 - 17, 18)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"remove_duplicates": "all"}, "unknown remove_duplicates 'all'; use one of"),
        ({"url_column": "page", "remove_duplicates": "near"}, "--url-column needs --remove-duplicates url; "),
        ({"boilerplate_documents": 5}, "--boilerplate-documents needs --remove-boilerplate"),
        ({"boilerplate_documents": 1, "remove_boilerplate": True}, "at least 2"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusSettings(**settings)
