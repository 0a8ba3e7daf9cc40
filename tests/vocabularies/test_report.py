"""The figures of the vocabulary report match the tokenizer."""

from bertsmith.base.core.settings import to_dict
from bertsmith.text.tokenizers.normalize import basic_tokens
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.report import MOST_ROWS, TOTAL, vocabulary_report
from bertsmith.text.vocabularies.word_counts import WordCounter, WordCounts, count_words
from text.corpora import english

VOCABULARY = Vocabulary([*SPECIAL_PIECES, "[unused0]", "[unused1]", "t", "tweet", "##t", "##ing", "##s", ".", "talk"])
TEXTS = {"one.txt": ["Tweeting tweets.", "tt"], "two.txt": ["talks talk's", "the"]}


def test_the_figures_are_those_of_the_tokenizer() -> None:
    tokenizer = WordPieceTokenizer(VOCABULARY)
    report = vocabulary_report(VOCABULARY, {name: count_words(texts) for name, texts in TEXTS.items()})
    for name, row in zip(TEXTS, report.texts, strict=True):
        words = [word for text in TEXTS[name] for word in basic_tokens(text, tokenizer.rules)]
        cut = [tokenizer.tokenize(word) for word in words]
        assert row.name == name
        assert row.words == len(words)
        assert row.chunks == sum(len(text.split()) for text in TEXTS[name])
        assert row.pieces == sum(map(len, cut))
        assert row.unknown == cut.count(["[UNK]"])
        assert row.whole == sum(len(pieces) == 1 and pieces != ["[UNK]"] for pieces in cut)
        assert row.characters == sum(map(len, words))
        assert row.pieces_per_word == row.pieces / row.words
        assert row.excess == (row.pieces - row.words) / row.chunks
    for column in ("chunks", "words", "pieces", "unknown", "whole", "characters", "covered"):
        assert getattr(report.total, column) == sum(getattr(row, column) for row in report.texts)
    assert report.total.name == TOTAL


def test_longest_spare_unused_and_missing_pieces_are_reported() -> None:
    report = vocabulary_report(VOCABULARY, {name: count_words(texts) for name, texts in TEXTS.items()})
    assert report.total.longest == ("tweet", "talk", "##ing", "##s", "##t")
    assert report.texts[1].longest == ("talk", "##s")
    assert (report.size, report.spare, report.never_used) == (14, 2, 0)
    # Of `the`, `'` and `s` only the `t` is a piece of its own; the inner letters of `tweeting` and `talks` are not.
    assert report.missing_characters["##h"] == 1
    assert report.missing_characters["'"] == 1
    assert next(iter(report.missing_characters)) == "##e"
    assert report.texts[0].covered == len("tt") + len("tts") + len(".") + len("tt")


def test_an_unknown_word_uses_no_piece() -> None:
    report = vocabulary_report(VOCABULARY, {"x": {"xyz": 4}})
    assert (report.total.unknown_rate, report.total.whole_rate, report.total.longest) == (1.0, 0.0, ())
    assert report.never_used == len(VOCABULARY) - len(SPECIAL_PIECES) - 2
    assert report.total.covered_rate == 0.0


def test_words_over_the_limit_are_unknown() -> None:
    counts = {"tweet": 1, "tweeting": 1}
    assert vocabulary_report(VOCABULARY, {"x": counts}, max_word_characters=5).total.unknown == 1
    assert vocabulary_report(VOCABULARY, {"x": counts}).total.unknown == 0


def test_the_lines_are_a_table_with_one_row_per_text_and_the_total() -> None:
    report = vocabulary_report(VOCABULARY, {name: count_words(texts) for name, texts in TEXTS.items()})
    lines = report.lines()
    assert [line.split()[0] for line in lines[:4]] == ["text", "one.txt", "two.txt", "total"]
    assert lines[1].split() == ["one.txt", "4", "2.3333", "1.7500", "0.0000%", "47.0588%", "25.00%", "tweet"]
    assert "2 spare [unused]" in lines[5]
    assert "characters that are not pieces" in lines[7]


def test_a_vocabulary_that_is_mostly_spare_comes_with_advice() -> None:
    for spare, is_advised in ((6, False), (7, True)):
        pieces = [*SPECIAL_PIECES, *(f"[unused{number}]" for number in range(spare)), "t"]
        *_, last = vocabulary_report(Vocabulary(pieces), {"x": {"t": 1}}).lines()
        assert last.startswith("advice: these texts are too short for 13 pieces, and all but 6 are") == is_advised
        assert ("with a smaller --size" in last) == is_advised


def test_one_text_has_no_total_and_no_text_is_no_error() -> None:
    lines = vocabulary_report(VOCABULARY, {"x": {"tt": 1}}).lines()
    assert not any(line.startswith(TOTAL) for line in lines)
    assert not any("not pieces" in line for line in lines)
    assert vocabulary_report(VOCABULARY, {}).total.pieces_per_word == 0.0


def test_a_learned_vocabulary_covers_its_corpus_and_the_report_can_be_stored() -> None:
    report = vocabulary_report(learn_vocabulary(english(), 130), {"english": english()})
    assert report.total.covered_rate == 1.0
    assert report.total.unknown == 0
    assert report.missing_characters == {}
    assert to_dict(report)["total"]["words"] == english().total()


def test_parts_of_one_counter_give_the_report_of_separate_counts() -> None:
    counter = WordCounter()
    parts = {}
    for name, texts in TEXTS.items():
        counter.add(texts)
        parts[name] = counter.part()
    apart = {name: count_words(texts) for name, texts in TEXTS.items()}
    expected = vocabulary_report(VOCABULARY, apart)
    assert vocabulary_report(VOCABULARY, parts, total=counter.counts) == expected
    assert vocabulary_report(VOCABULARY, apart, total=counter.counts) == expected
    assert vocabulary_report(VOCABULARY, parts, total=WordCounts.merged(apart.values())) == expected


def test_the_rows_of_many_texts_are_in_the_report_file_if_there_is_one() -> None:
    many = {f"{number}.txt": {"tweet": 1} for number in range(MOST_ROWS + 1)}
    report = vocabulary_report(VOCABULARY, many)
    assert sum(".txt" in line for line in report.lines()) == MOST_ROWS + 1
    lines = report.lines("report.json")
    assert lines[1].split()[:2] == [TOTAL, str(MOST_ROWS + 1)]
    assert lines[2] == f"the figures of each of the {MOST_ROWS + 1} texts: report.json"
    assert lines[3:] == report.lines()[MOST_ROWS + 3 :]
    few = vocabulary_report(VOCABULARY, dict(list(many.items())[:MOST_ROWS]))
    assert few.lines("report.json") == few.lines()
