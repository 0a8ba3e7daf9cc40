"""The pages of reports on a phone, in a real browser."""

import shutil

import pytest

from bertsmith.base.pages import html
from reports.page import Page

NAME = "settings.of_the_task.max_question_length_in_tokens"
DIGEST = "a3f1" * 16


def test_long_names_wrap_on_a_phone_and_numbers_do_not() -> None:
    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    program = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("needs chromium; none is installed")
    text = html.page("Settings", html.section("Settings", html.table([[NAME, "64"], ["digest", DIGEST]])))
    assert Page(text).text.count(NAME) == 1, "names can be found and copied as they are"
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 360, "height": 740})
        page.set_content(text)
        for element in ("document.documentElement", "document.querySelector('section')"):
            assert page.evaluate(f"{element}.scrollWidth <= {element}.clientWidth"), "nothing scrolls sideways"
        name, number, _, digest = (cell.bounding_box() for cell in page.locator("td").all())
        assert name["height"] > 2 * 20
        assert digest["height"] > 2 * 20
        assert number["width"] > 20
        wide = html.page("Scores", html.section("Scores", html.table([["accuracy", *["0.9876"] * 9]])))
        page.set_content(wide)
        assert {cell.evaluate("(cell) => cell.clientHeight < 35") for cell in page.locator("td").all()} == {True}
        browser.close()
