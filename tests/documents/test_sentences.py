"""Running text to sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.documents.forms import find_form, paragraphs_of
from bertsmith.text.documents.sentences import split_sentences

EXAMPLES = [
    "Mr. Smith met Dr. No at 5 p.m. on Jan. 5 and paid $3.50. | He left.",
    "J. R. R. Tolkien wrote it. | C. S. Lewis read it.",
    "The U.S. Army won. | He lives in the U.S. | They do not.",
    "See Fig. 3 and vol. XII of the work, e.g. the Preface. | No. | It was not.",
    '"Really?" he said. | "No!" she cried. | (It was late.) | Then [so they say.] they slept.',
    "“What is it? | I do not know. | Let us go.” | He went.",
    "She waited... | Nobody came. | And then… well, he came.",
    "What?! | No way!!! | Yes.",
    "Visit http://a.example/c.html or write to a.b@c.example. | Use foo.bar() and version 1.2.3 now.",
    "1. Scope of the work. | 2. Terms. | A. The first. | B. The second.",
    "It ends here.[1] | The next has [2] a note.",
    "Oh! what a day. | Yahoo! it rained.",
    "他问：“走吧？” | 然后走了。 | 我很好！",
    "「走ろう！」と言った。 | 雨が降った。 | 終わり．",
    "भारत एक देश है। | दिल्ली राजधानी है।",
    "هل أنت بخير؟ | نعم أنا بخير.",
    "Он пришёл. | Она ушла… | «Кто там?» | Никто.",
    "¿Quién es? | ¡Nadie! | «Vale.»",
    "Er kam am 3. Mai, z. B. mit dem 2. Zug. | Dann ging er.",
    "« Tu viens ? » | Il ne vint pas.",
    "„Kommst du?“, fragte er. | „Nein.“",
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_sentences_end_where_a_reader_would_split(example: str) -> None:
    """Abbreviations, initials, numbers, quotes, brackets, ellipses, and the marks of other scripts."""
    assert split_sentences(example.replace(" | ", " ")) == example.split(" | ")


def test_marks_of_scripts_without_spaces_need_no_space() -> None:
    assert split_sentences("我很好。你呢？（他也很好。）再见！") == ["我很好。", "你呢？", "（他也很好。）", "再见！"]
    assert split_sentences("है।दिल्ली है॥") == ["है।", "दिल्ली है॥"]


@pytest.mark.parametrize(
    "text",
    [
        "你好吗？我很好！再见。", "本当ですか？はい。", "यह सच है। वह घर गया।", "ما اسمك؟ أنا علي.",
        "آپ کیسے ہیں؟ میں ٹھیک ہوں۔", "Ի՞նչ է սա։ Սա տուն է։", "ይህ ቤት ነው። እሱ ሄደ።", "នេះជាផ្ទះ។ គាត់ទៅហើយ។",
        "ဒါအိမ်ပါ။ သူသွားပြီ။", "བོད་ཡིག། བོད་སྐད།", "Это дом. Он ушёл.", "집입니다. 갔습니다.",
    ],
)  # fmt: skip
def test_each_script_has_its_full_stops(text: str) -> None:
    result = split_sentences(text)
    assert len(result) == (3 if text.startswith("你") else 2)
    assert "".join(result).replace(" ", "") == text.replace(" ", "")


def test_text_without_capitals_is_split_at_every_mark() -> None:
    assert split_sentences("hello there. how are you? fine.") == ["hello there.", "how are you?", "fine."]


def test_thai_is_not_split() -> None:
    """It has no mark to split at."""
    text = "ผมชื่อสมชาย ผมอยู่ที่กรุงเทพ"
    assert split_sentences(text) == [text]


@pytest.mark.parametrize("text", ["", " \n ", "\t"])
def test_empty_text_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


MARKS = st.sampled_from(
    [".", "!", "?", "…", "。", "！", "।", "؟", '"', "”", ")", "(", "[1]", " ", " ", "\n", "a", "Mr", "U.S", "3", "他"]
)


@given(st.lists(MARKS, max_size=40).map("".join) | st.text(max_size=80))
def test_splitting_loses_and_adds_nothing_but_white_space(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize("piece", [".", '."', ".)", ". ", "a. ", "[1].", "。", "!?"])
def test_long_runs_of_marks_take_linear_work(piece: str) -> None:
    """A quadratic pattern would take hours and exceed the time limit of the suite."""
    text = piece * 200_000
    assert sum(map(len, split_sentences(text))) >= len(text) // 2


def test_the_form_of_a_text_is_detected() -> None:
    wrapped = (
        "It was late, and the boat\nhad not come. Nobody\nspoke of it until\nthe morning.\n\nThen it came\nhome.\n"
    )
    assert find_form(wrapped) == "wrapped"
    assert find_form("It was late. Nobody spoke.\nCHAPTER II\nThe boat came. It was empty.\n") == "paragraphs"
    assert find_form("It was late.\nNobody spoke.\n\nThe boat came.\n") == "lines"
    assert find_form("我很好。\n你呢？\n\n再见！\n") == "lines"
    assert find_form("It was late.\nNobody spoke.\n", "prose") == "paragraphs"
    assert find_form("") == "lines"


def test_wrapped_lines_become_one_paragraph() -> None:
    assert paragraphs_of("a\nb\n \t\nc\n\n\nd", "wrapped") == ["a\nb", "c", "d"]
    assert paragraphs_of("a\n\nb\n", "paragraphs") == ["a", "b"]
