"""The page in a real browser, with a server that gives fixed answers, and with the real one."""

import contextlib
import functools
import io
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import load
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.specs.kinds import task_for
from server.models import load_index
from server.page_stub import CROWDED, MODELS, PAGE, PARTS, UNKNOWN, WEAK, StubServer, stub_server, vector_of
from server.records import load_record_models
from tasks.architecture_samples import write_base_model as write_architecture
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, write_base_model

VIEWS = "fill complete next classify score choose tag answer write extract resolve".split()
VIEWS += "codes anomalies gaps follow match memory compare label rerank search pieces attention".split()
DESKTOP, PHONE, TALL_PHONE = ({"width": w, "height": h} for w, h in ((1280, 860), (360, 740), (390, 780)))
PICTURES = "BERTSMITH_PICTURES"  # a folder for pictures of the page
PICTURED = "BERTSMITH_PICTURED_MODELS"  # models, as NAME=FOLDER or FOLDER, joined as in PATH, to picture with

FILES = sorted(PAGE.iterdir())
HTML = (PAGE / "index.html").read_text(encoding="utf-8")

# For every element with text of its own: its words, the color of the text, and the colors behind it, nearest first.
COLOURS = """() => [...document.querySelectorAll("body *")].filter((e) =>
    e.checkVisibility({opacityProperty: true, visibilityProperty: true}) && !e.closest(".unseen, .skip, option")
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())
  ).map((e) => {
    const behind = [];
    for (let up = e; up; up = up.parentElement) behind.push(getComputedStyle(up).backgroundColor);
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgba = (color) => {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    return [e.textContent.trim().slice(0, 40), rgba(getComputedStyle(e).color), behind.map(rgba)];
  })"""
NAMELESS = """() => [...document.querySelectorAll("input, textarea, select, button, a")].filter((e) =>
    e.checkVisibility() && !(e.labels && [...e.labels].some((l) => l.textContent.trim()))
    && !e.textContent.trim() && !e.getAttribute("aria-label")
  ).map((e) => e.outerHTML)"""


@pytest.mark.parametrize("file", [file for file in FILES if file.suffix != ".svg"], ids=lambda file: file.name)
def test_the_page_contacts_no_other_server(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"(https?:)?//[\w.-]+\.\w", re.sub(r"^\s*//.*$", "", text, flags=re.M)), "an address elsewhere"
    assert "@import" not in text
    assert "innerHTML" not in text, "texts of users must stay texts"


def test_the_page_is_whole_small_and_has_no_code_or_style_inside() -> None:
    named = set(re.findall(r'"page/([\w.]+)"', HTML))
    for file in FILES:
        named |= set(re.findall(r'from "\./([\w.]+)"', file.read_text(encoding="utf-8")))
    assert named | {"index.html"} == {file.name for file in FILES}
    assert sum(file.stat().st_size for file in FILES) < 95_000
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", HTML)
    assert not re.findall(r"<script(?![^>]*\ssrc=)", HTML)


@pytest.fixture(scope="module")
def running_stub() -> Iterator[StubServer]:
    with stub_server() as server:
        yield server


@pytest.fixture
def stub(running_stub: StubServer) -> StubServer:
    running_stub.reset()
    return running_stub


class Visit:
    """A browser window on a server; its errors are recorded in `mistakes`, its requests in `asked`."""

    def __init__(
        self, browser: Any, address: str, *, viewport: dict[str, int] = DESKTOP, scheme: str = "light"
    ) -> None:
        self.address, self.mistakes, self.asked = address, [], []
        options = {"viewport": viewport, "color_scheme": scheme, "reduced_motion": "reduce", "locale": "en-US"}
        if viewport is not DESKTOP:
            options |= {"has_touch": True, "is_mobile": True}
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(120_000)  # of a hang, on a machine that is busy, too
        self.page.on("pageerror", lambda error: self.mistakes.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.mistakes.append(message.text))

    def open(self, view: str = "") -> Any:
        """The section of a view."""
        self.page.goto(f"{self.address}#{view}")
        self.page.locator("nav a").first.wait_for()
        section = self.page.locator("section.view:visible")
        section.wait_for()
        return section

    def run(self, view: str) -> Any:
        """The section of a view, its first example answered."""
        section = self.open(view)
        if view != "pieces":
            section.locator(".actions .go").click()
        self.answered(section)
        return section

    def answered(self, section: Any) -> None:
        section.locator(".answer:not([aria-busy]) > *").first.wait_for()

    def picture(self) -> bytes:
        """The whole page as PNG; the window is made as tall, since Chromium loses parts of what it scrolls."""
        width = self.page.viewport_size["width"]
        height = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.mouse.move(2, 2)
        self.page.wait_for_timeout(300)
        return self.page.screenshot()


@pytest.fixture
def visit(browser: Any, stub: StubServer) -> Iterator[Visit]:
    with _visit(browser, stub.address) as visit:
        yield visit


@contextlib.contextmanager
def _visit(browser: Any, address: str, **how: Any) -> Iterator[Visit]:
    visit = Visit(browser, address, **how)
    try:
        yield visit
    finally:
        visit.context.close()
    assert not visit.mistakes
    assert all(url.startswith(visit.address) for url in visit.asked), "nobody else is asked for anything"


def _lines(section: Any, selector: str) -> list[str]:
    return [re.sub(r"\s+", " ", text).strip() for text in section.locator(selector).all_inner_texts()]


def test_only_what_the_models_can_do_is_offered(visit, stub):
    visit.open()
    assert [link.get_attribute("href") for link in visit.page.locator("nav a").all()] == [f"#{view}" for view in VIEWS]
    stub.models = [MODELS[1]]
    visit.page.reload()
    visit.open("answer")  # which is not there: the first is shown
    offered = [link.get_attribute("href") for link in visit.page.locator("nav a").all()]
    assert offered == ["#classify", "#compare", "#pieces", "#attention"]
    assert visit.page.locator("h1:visible").inner_text() == "Classify"
    stub.models = []
    visit.page.reload()
    visit.page.get_by_text("no model that this page can show").wait_for()


def test_a_mask_is_filled_with_bars(visit, stub):
    section = visit.run("fill")
    assert _lines(section, ".answer .text") == ["The doctor shook his head and left the room."]
    assert _lines(section, ".bars li") == ["head 62.0%", "##room 20.0%", "town 1.0%"]
    widths = [bar.bounding_box()["width"] for bar in section.locator(".bar").all()]
    whole = section.locator(".track").first.bounding_box()["width"]
    assert [width / whole for width in widths] == pytest.approx([0.62, 0.2, 0.01], abs=0.005)
    assert stub.asked[-1] == (
        "/fill",
        {"model": "novels", "texts": ["The doctor shook his [MASK] and left the room."], "top": 5},
    )
    section.get_by_role("button", name="Two masks").click()
    section.get_by_role("heading", name="Mask 2").wait_for()
    assert _lines(section, ".answer mark") == ["head", "head"]


def test_the_button_inserts_a_mask_where_the_cursor_is(visit):
    section = visit.open("fill")
    text = section.get_by_label("Text")
    text.fill("a  b")
    text.press("ArrowLeft")
    text.press("ArrowLeft")
    section.get_by_role("button", name="Insert [MASK]").click()
    assert text.input_value() == "a [MASK] b"


def test_labels_have_percentages_and_each_model_its_examples(visit, stub):
    section = visit.run("classify")
    assert _lines(section, ".verdict") == ["positive"]
    assert _lines(section, ".bars li") == ["positive 100.0%", "negative <0.1%"]
    assert _lines(section, ".facts") == ["Labels: negative, positive"]
    assert _lines(section, ".note") == []
    section.get_by_label("Model").select_option("mails")
    assert "CONGRATULATIONS" in section.get_by_label("Text").input_value()
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert _lines(section, ".bars li") == ["Spam 100.0%", "Not Spam <0.1%"]
    assert _lines(section, ".note") == [f"T{WEAK[1:]}."]
    section.get_by_label("Answer").select_option("only if 95% of the answers are right")
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert _lines(section, ".verdict") == ["No answer: the model is not certain enough"]
    assert stub.asked[-1][1]["accuracy"] == 0.95
    section.get_by_label("Answer").select_option("a set of labels, with the right one as often as below")
    for written, refusal in (("", []), ("98 %", []), ("100", ["How often: a number of percent between 0 and 100."])):
        section.get_by_label("How often").fill(written)
        section.get_by_role("button", name="Classify").click()
        visit.answered(section)
        assert _lines(section, ".wrong") == refusal
    assert [asked["coverage"] for _, asked in stub.asked[-2:]] == [0.9, 0.98]
    section.get_by_label("Text").fill("my own text")
    section.get_by_label("Model").select_option("same")
    assert section.get_by_label("Text", exact=True).input_value() == "my own text"
    section.get_by_label("Second text").fill("another")
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert stub.asked[-1] == ("/predict", {"model": "same", "texts": [["my own text", "another"]]})


def test_two_models_answer_side_by_side(visit, stub):
    stub.models = [model | {"pair": True} if model["name"] == "same" else model for model in MODELS]
    section = visit.open("classify")
    section.get_by_label("Compare with").select_option("mails")
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert _lines(section, ".pair h2") == [visit.page.locator("select option").first.text_content(), "mails"]
    assert _lines(section, ".pair section:nth-child(1) .verdict") == ["positive"]
    assert _lines(section, ".pair section:nth-child(2) .verdict") == ["Spam"]
    first, second = (asked for _, asked in stub.asked[-2:])
    assert first["texts"] == second["texts"]
    assert [first["model"], second["model"]] == _lines(section, ".pair h2")
    section.get_by_label("Compare with").select_option("same")
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert _lines(section, ".pair .wrong") == ["This model also reads “Second text”; choose it above."]
    section.get_by_label("Compare with").select_option("none")
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert section.locator(".pair").count() == 0


def test_an_earlier_answer_comes_back_with_what_was_asked(visit, stub):
    section = visit.run("classify")
    text = section.get_by_label("Text", exact=True)
    asked, answer = text.input_value(), _lines(section, ".answer .bars li")
    assert not section.locator(".past").is_visible()
    section.get_by_label("Model").select_option("mails")
    text.fill("Win a prize")
    section.get_by_role("button", name="Classify").click()
    visit.answered(section)
    assert _lines(section, ".answer .bars li") != answer
    section.get_by_text("Earlier answers").click()
    told = _lines(section, ".past button")
    assert len(told) == 2
    assert told[0] == "Win a prize · mails"
    requests = len(stub.asked)
    section.locator(".past button").nth(1).click()
    assert (text.input_value(), _lines(section, ".answer .bars li")) == (asked, answer)
    assert section.get_by_label("Model").evaluate("(e) => e.selectedIndex") == 0
    assert len(stub.asked) == requests, "nothing was asked again"


def test_the_best_text_is_written_above_the_others_and_says_where_it_was_not_ended(visit, stub):
    section = visit.run("write")
    assert _lines(section, ".verdict") == ["At ten."]
    assert _lines(section, ".answer li") == ["At two."]
    assert _lines(section, ".answer .remark")[0] == "The text ends here because it has the maximum length."
    assert stub.asked[-1][1]["model"] == "replies"
    section.get_by_role("button", name="A question").click()
    section.locator(".actions .go").click()
    visit.answered(section)
    assert not any("maximum length" in line for line in _lines(section, ".answer .remark"))


def test_a_text_is_shown_while_it_is_written_and_then_its_answer(visit, stub):
    stub.may_continue.clear()
    section = visit.open("write")
    section.locator(".actions .go").click()
    section.get_by_text("and", exact=True).wait_for()
    assert _lines(section, ".actions .go") == ["Stop"]
    assert section.locator(".answer[aria-busy]").evaluate("(e) => getComputedStyle(e).opacity") == "1"
    assert [path for path, _ in stub.asked] == ["/v1/completions"]
    stub.may_continue.set()
    visit.answered(section)
    assert (_lines(section, ".verdict"), _lines(section, ".actions .go")) == (["At ten."], ["Write"])
    text = section.get_by_label("Text").input_value()
    assert stub.asked == [
        ("/v1/completions", {"model": "replies", "prompt": text, "stream": True}),
        ("/predict", {"model": "replies", "texts": [text]}),
    ]


def test_a_text_grows_behind_its_beginning(visit, stub):
    section = visit.open("complete")
    section.evaluate("""(section) => {
        window.shown = [];
        const answer = section.querySelector(".answer");
        const observer = new MutationObserver(() => window.shown.push(answer.querySelector(".text")?.textContent));
        observer.observe(answer, {childList: true, subtree: true});
    }""")
    section.locator(".actions .go").click()
    visit.answered(section)
    shown, text = visit.page.evaluate("window.shown.filter(Boolean)"), section.get_by_label("Text").input_value()
    assert text + PARTS[0] in shown
    assert shown[-1] == text + "".join(PARTS)
    assert shown == sorted(shown, key=len), "no part is lost or changed"
    assert _lines(section, ".bars li") == ["on 50.0%", "off 25.0%"]
    body = {"model": "novels", "max_tokens": 24, "top_p": 0.9, "prompt": text, "stream": True}
    assert stub.asked[0] == ("/v1/completions", body)
    assert stub.asked[1][1] == {"model": "novels", "texts": [text], "top": 8, "tokens": 24, "top_p": 0.9}


def test_a_text_that_is_being_written_can_be_stopped(visit, stub):
    stub.may_continue.clear()
    section = visit.open("write")
    section.locator(".actions .go").click()
    section.get_by_text("and", exact=True).wait_for()
    section.get_by_role("button", name="Stop").click()
    section.get_by_role("button", name="Write").wait_for()
    assert (_lines(section, ".verdict"), _lines(section, ".remark")) == (["and"], ["Stopped."])
    assert section.locator(".answer[aria-busy]").count() == 0
    assert stub.has_left.wait(120), "the server sees it"
    assert [path for path, _ in stub.asked] == ["/v1/completions"]
    stub.may_continue.set()
    section.locator(".actions .go").click()
    visit.answered(section)
    section.get_by_text("At ten.").wait_for()


def test_a_model_that_cannot_send_its_text_in_parts_answers_at_once(browser, stub):
    visit = Visit(browser, stub.address)
    stub.refused_streams = (422, b'{"error": {"message": "expected a model that reads forward", "type": "x"}}', {})
    assert _lines(visit.run("complete"), ".bars li")[0] == "on 50.0%"
    stub.refused_streams = (429, b'{"error": {"message": "too much is waiting", "type": "x"}}', {})
    section = visit.open("write")
    section.locator(".actions .go").click()
    section.get_by_role("alert").get_by_text("too much is waiting.").wait_for()
    assert stub.asked[-1][0] == "/v1/completions", "nothing else is asked"
    visit.context.close()


def test_visits_are_written_line_by_line_and_likely_codes_have_bars(visit, stub):
    section = visit.run("codes")
    assert _lines(section, ".bars li") == ["tea green 75.0%", "diet 12.5%"]
    assert _lines(section, ".note") == [f"T{WEAK[1:]}.", f"{UNKNOWN}."]
    visits = [{"codes": {"diagnosis": ["flu"], "medication": ["rest"]}}, {"codes": {"diagnosis": ["gout"]}}]
    assert stub.asked[-1] == ("/codes/predict", {"model": "visits", "subjects": [{"visits": visits}], "top": 8})
    section.get_by_label("Visits").fill("flu")
    section.locator(".actions .go").click()
    section.get_by_text("Write “flu” with its kind, such as “diagnosis:flu”.").wait_for()
    section = visit.run("anomalies")
    assert _lines(section, ".answer h2") == ["Visit 1: surprise 1.50", "Visit 2: surprise 1.50"]


def test_texts_with_codes_and_facts(visit, stub):
    section = visit.run("gaps")
    assert _lines(section, ".answer h2")[:2] == ["Mask 1", "Mask 1 without the codes"]
    assert stub.asked[-1][1]["segments"][0]["codes"] == ["0.1", "0.2"]
    assert _lines(visit.run("follow"), ".bars li") == ["1.0 50.0%"]
    assert stub.asked[-1][1]["segments"] == [{"text": "", "codes": ["0.1", "0.2"]}]
    assert _lines(visit.run("match"), ".bars li") == ["0.2 75.0%", "0.1 25.0%"]
    assert stub.asked[-1][1]["segments"] == [{"codes": ["0.1"]}, {"codes": ["0.2"]}]
    section = visit.run("memory")
    assert _lines(section, ".verdict") == ["office 87.5%"]
    assert _lines(section, ".note") == [f"{UNKNOWN}."]
    assert _lines(section, ".bars li")[:3] == [
        "Mary went to the kitchen. 25.0%", "John went to the garden. 0.0%", "Mary moved to the office. 75.0%",
    ]  # fmt: skip
    assert len(_lines(section, ".answer h2")) == 2


def test_numbers_endings_and_next_sentences(visit, stub):
    assert _lines(visit.run("score"), ".value") == ["3.46"]
    assert len(stub.asked[-1][1]["texts"][0]) == 2, "a model of pairs is given pairs"
    section = visit.run("choose")
    assert _lines(section, ".bars .best") == ["Then she swam to the other side. 70.0%"]
    assert len(stub.asked[-1][1]["questions"][0]["endings"]) == 3
    assert _lines(visit.run("next"), ".bars li") == ["It follows 87.5%", "It does not 12.5%"]


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([1 / 3, 1 / 3, 1 / 3], ["33.4%", "33.3%", "33.3%"]),
        ([0.9996, 0.0004], ["100.0%", "<0.1%"]),
        ([0.99975, 0.00025, 0.0], ["100.0%", "<0.1%", "0.0%"]),
        ([1 / 7] * 7, ["14.3%"] * 6 + ["14.2%"]),
        ([0.99] + [0.00055] * 18, ["99.0%"] + ["0.1%"] * 10 + ["<0.1%"] * 8),
        ([0.9996, 0.9996], ["100.0%", "100.0%"]),  # of several labels, each by itself
        ([0.62, 0.2], ["62.0%", "20.0%"]),
        ([1.0], ["100.0%"]),
        ([], []),
    ],
)
def test_percentages_of_a_whole_add_up(visit, shares, told):
    visit.open()
    assert visit.page.evaluate("async (shares) => (await import('/page/parts.js')).percents(shares)", shares) == told


def test_an_answer_is_marked_in_its_context(visit):
    section = visit.run("answer")
    assert _lines(section, ".answer mark") == ["Roald Amundsen"]
    assert _lines(section, ".rows button") == ["Roald Amundsen 80.0%", "Robert Falcon Scott 15.0%"]
    section.get_by_role("button", name="Robert Falcon Scott").click()
    assert _lines(section, ".answer mark") == ["Robert Falcon Scott"]
    section.get_by_role("button", name="Not said").click()
    section.get_by_text("The text does not say.").wait_for()
    assert section.locator(".answer mark").count() == 0
    section.get_by_label("Text").fill("🙂🙂 says Roald Amundsen 👩‍🚀 to all")  # characters outside the basic plane
    section.get_by_role("button", name="Answer").click()
    section.locator("mark").wait_for()
    assert _lines(section, ".answer mark") == ["Roald Amundsen"]


def test_entities_are_marked_with_their_types(visit):
    section = visit.run("tag")
    assert _lines(section, ".answer mark") == ["Roald AmundsenPER", "OsloLOC"]
    section.get_by_label("Text").fill("⚽🥅 Dušan Tadić and Maria Silva")
    section.get_by_role("button", name="Mark").click()
    section.locator("mark", has_text="Dušan Tadić").wait_for()
    assert _lines(section, ".answer .text") == ["⚽🥅 Dušan TadićPER and Maria SilvaPER"]


def test_similar_texts_and_ranked_passages(visit):
    section = visit.open("compare")
    texts = ["a cat", "ee", "a bat"]
    section.get_by_label("Texts").fill("\n\n".join(texts))
    section.get_by_role("button", name="Compare").click()
    visit.answered(section)
    vectors = [vector_of(text) for text in texts]
    for row, line in zip(vectors, section.locator("tbody tr").all(), strict=True):
        wanted = [np.dot(row, other) / np.linalg.norm(row) / np.linalg.norm(other) for other in vectors]
        assert _lines(line, "td") == [f"{cosine:.2f}" for cosine in wanted]
    assert _lines(visit.run("label"), ".bars li .number") == ["75.0%", "12.5%", "12.5%"]
    assert visit.page.locator("section:visible .answer").inner_text().startswith("billing")
    assert _lines(visit.run("rerank"), ".bars li .number") == ["0.900", "0.700", "0.500", "0.300", "0.100"]
    assert _lines(visit.page, "section:visible .note") == [f"T{CROWDED[1:]}."]


def test_texts_of_an_index_are_listed_with_their_scores(visit, stub):
    section = visit.open("search")
    section.get_by_label("Query").fill("who mended it")
    section.get_by_label("Conditions").fill("year >= 2020\n\nplace = oslo")
    section.get_by_role("button", name="Search").click()
    visit.answered(section)
    assert _lines(section, ".bars li") == ["The gate was mended. 0.800", "Anna came late. 0.300"]
    assert section.locator(".bars li").first.get_attribute("title") == "a1"
    where = ["year >= 2020", "place = oslo"]
    assert stub.asked[-1] == ("/search", {"model": "repairs", "query": "who mended it", "top": 10, "where": where})


def test_pieces_appear_while_one_writes(visit, stub):
    section = visit.run("pieces")
    section.get_by_label("Text").press_sequentially("tokenization, 東京", delay=5)
    section.get_by_text("1 word that the vocabulary cannot spell").wait_for()
    section.get_by_label("Text").fill("tokenization")
    section.get_by_text("2 pieces", exact=True).wait_for()
    assert _lines(section, ".tagged") == ["token 100", "##ization 101"]
    section.get_by_label("Text").fill("東京 token")
    section.get_by_text("1 word that the vocabulary cannot spell").wait_for()
    assert _lines(section, ".tagged") == ["[UNK] 100 special", "token 101"]
    assert len(stub.asked) < 8, "not a request for each key"


def test_truncated_tokens_are_shown(visit):
    section = visit.run("classify")
    assert _lines(section, ".usage")[0].startswith("12 tokens received, none truncated")
    section.get_by_label("Text").fill("long")
    section.get_by_role("button", name="Classify").click()
    section.locator(".usage.cut").wait_for()
    told = _lines(section, ".usage")[0]
    assert told.startswith("612 tokens received, 512 read, 100 truncated. The model reads at most 512 tokens at once.")
    section = visit.open("compare")
    section.get_by_label("Texts").fill("long\nshort")
    section.get_by_role("button", name="Compare").click()
    section.locator(".usage.cut").wait_for()
    assert "16 truncated. The model reads at most 128 tokens of each text." in _lines(section, ".usage")[0]
    section = visit.open("answer")
    section.get_by_label("Question").fill("long")
    section.get_by_role("button", name="Answer").click()
    section.locator(".usage.cut").wait_for()
    assert (
        "10 truncated. The model reads at most 64 tokens of a question, and the whole text."
        in _lines(section, ".usage")[0]
    )


def test_each_request_is_shown_as_a_command(visit):
    section = visit.open("fill")
    section.get_by_label("Text").fill("it's [MASK]")
    section.get_by_role("button", name="Fill").click()
    section.get_by_text("The same request with curl").click()
    command = section.locator("pre").inner_text()
    assert command.startswith(f"curl -s {visit.address}fill")
    body = command.partition("-d '")[2].removesuffix("'").replace("'\\''", "'")
    assert json.loads(body) == {"model": "novels", "texts": ["it's [MASK]"], "top": 5}


def test_texts_are_shown_as_texts(visit, stub):
    stub.models = [{**MODELS[1], "name": "<i>name</i>", "labels": ["<b>bad</b>", "<img src=x onerror=alert(1)>"]}]
    section = visit.run("classify")
    assert _lines(section, ".verdict") == ["<img src=x onerror=alert(1)>"]
    assert visit.page.locator("#content img, #content b, #content i").count() == 0


def test_a_piece_shows_where_it_looks(visit):
    section = visit.run("attention")
    spots, shares = section.locator("button.spot"), _shares(section, ".to .spot")
    assert spots.count() == 15
    assert section.locator(".head").count() == 12
    assert set(shares) == {0.0}
    spots.nth(5).hover()
    assert _lines(section, ".told")[0].startswith("Layer 1, head 1: the attends most to the ")
    shares = _shares(section, ".to .spot")
    assert shares.index(max(shares)) == 5
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    section.get_by_role("button", name="Layer 3, head 3").click()
    assert section.get_by_label("Layer", exact=True).input_value() == "2"
    assert section.locator(".head[aria-pressed=true]").get_attribute("aria-label") == "Layer 3, head 3"
    spots.nth(5).click()
    visit.page.mouse.move(2, 2)
    shares = _shares(section, ".to .spot")
    assert shares.index(max(shares)) == 3, "head 3 looks two back"
    section.get_by_text("is attended to by").click()
    shares = _shares(section, ".to .spot")
    assert shares.index(max(shares)) == 7
    section.get_by_text("attends to", exact=True).click()
    section.get_by_label("Head", exact=True).select_option("mean")
    assert "mean of all heads" in _lines(section, ".told")[0]
    assert sum(_shares(section, ".to .spot")) == pytest.approx(1, abs=1e-3)
    section.locator("label", has_text=re.compile("^text$")).click()
    assert section.locator("canvas").count() == 12, "no lines"
    assert sum(_shares(section, ".running .spot")) == pytest.approx(1, abs=1e-3)


def test_lines_are_drawn_from_pieces_to_pieces(visit):
    section = visit.run("attention")
    drawn = (
        "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((v) => v > 0)"
    )
    assert section.locator(".columns canvas").evaluate(drawn)
    assert all(section.locator(".head canvas").evaluate_all(f"(all) => all.map({drawn})"))
    section.get_by_label("Text", exact=True).fill("word " * 60)
    section.get_by_role("button", name="Show").click()
    section.locator(".running").wait_for()  # two columns of so many would be long
    assert section.locator(".running .spot").count() == 62


def _shares(section: Any, selector: str) -> list[float]:
    return section.locator(selector).evaluate_all(
        "(all) => all.map((e) => Number(e.style.getPropertyValue('--share')))"
    )


def test_everything_can_be_done_with_the_keyboard(visit):
    visit.open("fill")
    page = visit.page
    page.locator("body").press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(len(VIEWS) + 6):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.hash") == "#attention":
            break
    page.keyboard.press("Enter")
    page.locator("h1:visible", has_text="Attention").wait_for()
    section = page.locator("section.view:visible")
    section.get_by_label("Text", exact=True).focus()
    page.keyboard.press("Control+Enter")
    section.locator("button.spot").first.wait_for()
    stops = []
    for _ in range(15):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.classList[0]"))
    assert stops.count("spot") == 1, "one stop for all pieces"
    assert stops.count("head") == 1, "one stop for all heads"
    section.locator("button.spot").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "cup attends most to" in _lines(section, ".told")[0]
    section.locator(".head").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert section.locator(".head[aria-pressed=true]").get_attribute("aria-label") == "Layer 2, head 4"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_can_be_read(browser, stub, scheme):
    with _visit(browser, stub.address, scheme=scheme) as visit:
        for view in VIEWS:
            section = visit.run(view)
            if view == "attention":
                visit.run(view).locator("button.spot").nth(4).click()
            assert visit.page.evaluate(NAMELESS) == []
            assert section.locator("h1").count() == 1
            poor = {text: ratio for text, ratio in _contrasts(visit.page.evaluate(COLOURS)) if ratio < 4.5}
            assert poor == {}, view


def test_axe_finds_no_fault_in_any_view(browser, stub):
    axe = pytest.importorskip("axe_playwright_python", reason="needs the package axe-playwright-python")
    program = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with _visit(browser, stub.address) as visit:

        def faults() -> list[tuple[str, list[str]]]:
            result = visit.page.evaluate(f"{program}; axe.run(document, {{resultTypes: ['violations']}})")
            return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in result["violations"]]

        for view in VIEWS:
            visit.run(view)
            assert faults() == [], view
        visit.page.evaluate("document.querySelector('main').append(document.createElement('img'))")
        assert [name for name, _ in faults()] == ["image-alt"], "it is able to find one"


def _contrasts(rows: list[Any]) -> Iterator[tuple[str, float]]:
    """The contrast of each text to its background, by the formula of WCAG 2."""

    def over(front: list[float], back: list[float]) -> list[float]:
        share = front[3] / 255
        return [*(share * a + (1 - share) * b for a, b in zip(front[:3], back[:3], strict=True)), 255]

    def light(color: list[float]) -> float:
        parts = [value / 255 for value in color[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for text, color, behind in rows:
        back = behind[-1]
        for layer in behind[-2::-1]:
            back = over(layer, back)
        low, high = sorted([light(over(color, back)), light(back)])
        yield text, (high + 0.05) / (low + 0.05)


def test_nothing_is_wider_than_a_phone(browser, stub):
    with _visit(browser, stub.address, viewport=PHONE) as visit:
        for view in VIEWS:
            section = visit.run(view)
            assert visit.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], view
            low = "(all) => all.filter((e) => e.checkVisibility() && e.offsetHeight < 24).map((e) => e.outerHTML)"
            assert section.locator("button, a").evaluate_all(low) == [], "fingers need room"
            table = "(e) => [e.scrollWidth, e.clientWidth]"
            assert view != "compare" or len(set(section.locator(".wide").evaluate(table))) == 1, "five texts fit"
        assert section.locator(".running .spot").count() == 15, "pieces stand as a text"


def test_a_finger_shows_where_a_piece_looks(browser, stub):
    with _visit(browser, stub.address, viewport=PHONE) as visit:
        section = visit.open("attention")
        section.get_by_role("button", name="Show").tap()
        visit.answered(section)
        section.get_by_role("button", name="Layer 3, head 3").tap()
        for tapped in (5, 9):
            section.locator("button.spot").nth(tapped).tap()
            shares = _shares(section, ".running .spot")
            assert shares.index(max(shares)) == tapped - 2, "head 3 looks two back"
            assert sum(shares) == pytest.approx(1, abs=1e-3)


def test_a_finger_shows_the_probability_of_an_entity(browser, stub):
    with _visit(browser, stub.address, viewport=PHONE) as visit:
        section = visit.run("tag")
        section.get_by_text("Tap an entity to see its probability.").wait_for()
        after = "(mark) => getComputedStyle(mark, '::after').content"
        marks = section.locator(".answer mark")
        for tapped, other in ((0, 1), (1, 0)):
            marks.nth(tapped).tap()
            assert [marks.nth(element).evaluate(after) for element in (tapped, other)] == ['"90.0%"', "none"]
        assert "Tap a piece to see what it attends to." in visit.open("attention").inner_text()
    with _visit(browser, stub.address) as visit:
        assert "Point at a piece to see what it attends to." in visit.open("attention").inner_text()
        visit.run("tag").get_by_text("Point at an entity to see its probability.").wait_for()


def test_the_page_is_there_at_once(visit):
    visit.open()
    assert len(visit.asked) <= len(FILES) + 1, "its files and the list of models, each once"
    loaded = "performance.getEntriesByType('resource').reduce((sum, e) => sum + e.decodedBodySize, 0)"
    assert visit.page.evaluate(loaded) < 95_000


def test_colors_follow_the_system_and_the_switch(browser, stub):
    shown = "getComputedStyle(document.documentElement).backgroundColor"
    with _visit(browser, stub.address, scheme="light") as visit:
        visit.open()
        light = visit.page.evaluate(shown)
        visit.page.emulate_media(color_scheme="dark")
        dark = visit.page.evaluate(shown)
        assert dark != light
        switch = visit.page.get_by_role("button", name="Dark mode")
        visit.page.get_by_role("button", name="Dark mode", pressed=True).wait_for()
        switch.click()
        assert (visit.page.evaluate(shown), switch.get_attribute("aria-pressed")) == (light, "false")
        visit.page.reload()
        assert visit.page.evaluate(shown) == light
        switch.click()
        visit.page.emulate_media(color_scheme="light")
        visit.page.reload()
        assert visit.page.evaluate(shown) == light, "the system is followed again"


REFUSALS = [
    (422, b'{"error": {"message": "expected a text with [MASK]; found none", "type": "x"}}', {}, "a text with [MASK]"),
    (429, b'{"error": {"message": "too much is waiting", "type": "x"}}', {"retry-after": "3"}, "Try again in 3 s."),
    (500, b"<html>broken</html>", {}, "The server answered 500"),
    (200, b"no json", {}, "The server answered 200"),
]


@pytest.mark.parametrize("view", ["fill", "attention"])
def test_a_refusal_shows_the_message_of_the_server(browser, stub, view):
    visit = Visit(browser, stub.address)
    section = visit.open(view)
    for *refusal, sentence in REFUSALS:
        stub.refusal = tuple(refusal)
        section.locator(".actions .go").click()
        section.get_by_role("alert").get_by_text(sentence).wait_for()
    stub.refusal = None
    section.locator(".actions .go").click()
    section.locator(".usage").wait_for()
    assert section.get_by_role("alert").count() == 0
    visit.context.close()


def test_a_server_that_is_gone_and_a_field_that_is_empty(browser, stub):
    visit = Visit(browser, stub.address)
    section = visit.open("fill")
    section.get_by_label("Text").fill(" ")
    section.get_by_role("button", name="Fill").click()
    assert section.get_by_role("alert").inner_text() == "Fill in “Text” first."
    assert stub.asked == []
    section.get_by_label("Text").fill("a [MASK]")
    visit.context.set_offline(True)
    section.get_by_role("button", name="Fill").click()
    section.get_by_text("The server does not answer. Is it still running?").wait_for()
    visit.context.close()


def test_a_name_that_is_not_in_the_text_is_refused_by_the_page(visit: Visit) -> None:
    view = visit.run("resolve")
    sent = len(visit.asked)
    view.get_by_label("Candidates").fill("Maria\nHel")
    view.locator(".actions .go").click()
    assert view.get_by_role("alert").inner_text() == "“Hel” is not in the text."
    assert (len(visit.asked), visit.mistakes) == (sent, [])


def test_a_server_with_a_key_asks_for_it(browser, stub):
    visit = Visit(browser, stub.address)
    stub.key = "secret"
    visit.page.goto(stub.address)
    visit.page.get_by_label("This server requires a key.").fill("wrong")
    visit.page.get_by_role("button", name="Unlock").click()
    visit.page.get_by_label("This server requires a key.").fill("secret")
    visit.page.get_by_role("button", name="Unlock").click()
    visit.page.locator("nav a").first.wait_for()
    assert not visit.page.locator("#unlock").is_visible()
    section = visit.run("fill")
    assert _lines(section, ".bars li")[0] == "head 62.0%"
    assert "secret" not in visit.page.content()
    visit.context.close()


@contextlib.contextmanager
def _real_server(models: dict[str, Any]) -> Iterator[str]:
    """The address of a server with some models, in this process."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra serve")
    pytest.importorskip("fastapi", reason="needs the extra serve")
    pytest.importorskip("prometheus_client", reason="needs the extra serve")
    from bertsmith.app.server.app import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(models), port=0, log_level="warning", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An untrained model for each ability."""
    folder = tmp_path_factory.mktemp("models")
    write_base_model(folder / "base")
    write_architecture(folder / "stories", "openai-gpt")
    for kind in (
        "single",
        "pair",
        "number",
        "choice",
        "tags",
        "answer or none",
        "text to write",
        "sentences",
        "pronoun",
    ):
        task = task_for(SPECS[kind])
        trained = (task.head.part, *(["pooler"] if task.head.pooled else []))
        info = {"task": task.kind, "labels": list(task.spec.labels), "spec": task.spec.to_dict()}
        save_pretrained(
            folder / kind,
            EncoderForTask(new_encoder(CONFIG), task.head),
            TOKENIZER,
            ModelMetadata.from_dict(info),
            trained=trained,
        )
    return {path.name: load(path, device="cpu") for path in sorted(folder.iterdir())}


def test_every_view_works_on_the_real_server(browser, tiny_models, tmp_path):
    index = load_index(tmp_path, write_base_model(tmp_path / "indexed"))
    with (
        _real_server({**tiny_models, **load_record_models(tmp_path), **index}) as address,
        _visit(browser, address) as visit,
    ):
        visit.open()
        assert [link.get_attribute("href") for link in visit.page.locator("nav a").all()] == [
            f"#{view}" for view in VIEWS
        ]
        for view in VIEWS:
            section = visit.run(view)
            assert section.get_by_role("alert").count() == 0, section.get_by_role("alert").inner_text()
            assert re.match(r"[\d,]+ tokens received, ", _lines(section, ".usage")[0]), view
        section.get_by_label("Text", exact=True).fill("word " * 200)
        section.get_by_role("button", name="Show").click()
        assert "shorten the text" in section.get_by_role("alert").inner_text()
        visit.mistakes.clear()  # the browser notes that a request was refused


def _told(percent: str) -> float:
    """The share that is shown; half of the least one for what is less."""
    return 0.0005 if percent.startswith("<") else float(percent.removesuffix("%")) / 100


def _bars(section: Any) -> dict[str, float]:
    shares = [_told(number) for number in _lines(section, ".bars .number")]
    return dict(zip(_lines(section, ".bars .label"), shares, strict=True))


def _written(section: Any, *labels: str) -> tuple[str, ...]:
    return tuple(section.get_by_label(label, exact=True).input_value() for label in labels)


def test_what_is_shown_is_what_the_library_says(browser, tiny_models):
    base, near = tiny_models["base"], functools.partial(pytest.approx, abs=1.1e-3)
    with _real_server(tiny_models) as address, _visit(browser, address) as visit:
        section = visit.run("fill")
        [[result]] = base.fill(_written(section, "Text"))
        assert _bars(section) == near({guess.piece: guess.probability for guess in result})
        section = visit.run("next")
        [result] = base.next_sentence([_written(section, "Text", "Second text")])
        assert _bars(section)["It follows"] == near(result.probability)
        section = visit.open("classify")
        section.get_by_label("Model").select_option("single")
        visit.run("classify")
        [result] = tiny_models["single"].classify(_written(section, "Text"))
        assert _lines(section, ".verdict") == [result.label]
        assert _bars(section) == near(dict(zip(result.labels, result.probabilities, strict=True)))
        section = visit.run("complete")
        [completed] = tiny_models["stories"].complete(_written(section, "Text"), top=8, tokens=24, top_p=0.9)
        assert section.locator(".answer .text").text_content() == completed.text + completed.continuation
        section = visit.open("write")
        section.get_by_label("Text").fill("anna was in rome")
        visit.run("write")
        [written] = tiny_models["text to write"].generate(_written(section, "Text"))
        assert _lines(section, ".verdict") == [written.text or "Nothing."]
        streams = [url for url in visit.asked if url.endswith("v1/completions")]
        assert len(streams) == 2, "both were shown while they were written"
        section = visit.run("tag")
        [result] = tiny_models["tags"].tag(_written(section, "Text"))
        assert result.entities, "something is marked"
        text = _written(section, "Text")[0]
        wanted = [text[slice(*entity.characters)] + entity.type for entity in result.entities]
        assert _lines(section, ".answer mark") == wanted
        section = visit.run("answer")
        question, context = _written(section, "Question", "Text")
        [result] = tiny_models["answer or none"].answer([(question, context)], n_best=20)
        best = next((begin, end) for words, begin, end, _ in result.n_best if words)
        section.locator(".rows button").first.click()
        assert _lines(section, ".answer mark") == [context[slice(*best)]]
        assert ("does not say" in _lines(section, ".verdict")[0]) == (not result.has_answer)


def test_vectors_pieces_and_attention_are_those_of_the_library(browser, tiny_models):
    with _real_server(tiny_models) as address, _visit(browser, address) as visit:
        section = visit.open("compare")
        section.get_by_label("Model").select_option("base")
        visit.run("compare")
        vectors = tiny_models["base"].embed(_written(section, "Texts")[0].split("\n"), normalize=True)
        shown = [[float(cell) for cell in _lines(line, "td")] for line in section.locator("tbody tr").all()]
        assert np.allclose(shown, vectors @ vectors.T, atol=0.006)
        section = visit.open("pieces")
        section.get_by_label("Model").select_option("base")
        visit.answered(section)
        assert _lines(section, ".piece") == tiny_models["base"].pieces(_written(section, "Text"))[0]
        section = visit.open("attention")
        section.get_by_label("Model").select_option("base")
        visit.answered(section)
        looked = tiny_models["base"].attention(*_written(section, "Text")).to_dict()
        assert _lines(section, ".from .piece") == looked["pieces"]
        for layer, head, at in ((0, 0, 3), (1, 1, 5), (0, 1, 0)):
            section.get_by_role("button", name=f"Layer {layer + 1}, head {head + 1}").click()
            section.locator(".from .spot").nth(at).hover()
            assert _shares(section, ".to .spot") == pytest.approx(looked["attention"][layer][head][at])


@pytest.mark.skipif(PICTURES not in os.environ, reason=f"draws only if {PICTURES} names a folder")
def test_pictures_of_the_page(browser, stub):
    """Of the models in PICTURED, or of the stub; vectors and attention are those of the second model that has them."""
    image = pytest.importorskip("PIL.Image")
    run = pytest.importorskip("bertsmith.app.server.process", reason="needs the extra serve")
    folder = Path(os.environ[PICTURES])
    sources = [source for source in os.environ.get(PICTURED, "").split(os.pathsep) if source]
    models = run.load_models(sources)
    with _real_server(models) if models else contextlib.nullcontext(stub.address) as address:
        for name, view, viewport, scheme in (
            ("fill", "fill", DESKTOP, "light"),
            ("two-models", "fill", DESKTOP, "light"),
            ("similarity", "compare", DESKTOP, "light"),
            ("attention", "attention", DESKTOP, "light"),
            ("attention-dark", "attention", DESKTOP, "dark"),
            ("entities", "tag", DESKTOP, "light"),
            ("answer", "answer", DESKTOP, "light"),
            ("next", "next", DESKTOP, "light"),
            ("phone", "classify", TALL_PHONE, "light"),
            ("phone-attention", "attention", TALL_PHONE, "dark"),
        ):
            with _visit(browser, address, viewport=viewport, scheme=scheme) as visit:
                section = visit.open(view)
                if not visit.page.locator(f"nav a[href='#{view}']").count():
                    continue  # none of the models can do that
                model = section.get_by_label("Model")
                if view in ("compare", "attention") and model.count():
                    model.select_option(index=1)
                if name == "two-models":
                    rivals = section.get_by_label("Compare with")
                    rivals.select_option(index=rivals.locator("option").count() - 1)
                for _ in range(2):  # the first is slow: it is the first that the model is asked
                    section.locator(".actions .go").click()
                    visit.answered(section)
                if view == "attention":
                    section.get_by_role("button", name="Layer 3, head 3").click()
                    section.locator("button.spot").nth(8).click()
                picture = image.open(io.BytesIO(visit.picture()))
                assert picture.width == viewport["width"]
                picture.quantize(256).save(folder / f"page-{name}.png", optimize=True)
