"""URLs are found as they were written, and compared in one form."""

import pytest

from bertsmith.text.documents.urls import normalized_url, url_of, url_of_mark

SAME = [
    "https://example.org/Boats?id=1",
    "HTTPS://EXAMPLE.org/Boats?id=1",
    "https://example.org:443/Boats/?id=1",
    "https://example.org:/Boats//?id=1#rain",
    " https://example.org/Boats?id=1#\n",
]
OTHERS = [
    "http://example.org/Boats?id=1",
    "https://www.example.org/Boats?id=1",
    "https://example.org/boats?id=1",
    "https://example.org:8443/Boats?id=1",
    "https://example.org:80/Boats?id=1",
    "https://example.org/Boats?id=2",
    "https://example.org/Boats",
    "https://user@example.org/Boats?id=1",
    "https://User@example.org/Boats?id=1",
    "example.org/Boats?id=1",
    "https://[::1]/Boats?id=1",
]


def test_urls_of_one_page_are_the_same() -> None:
    assert {normalized_url(url) for url in SAME} == {SAME[0]}


def test_everything_else_counts() -> None:
    assert len({normalized_url(url) for url in [SAME[0], *OTHERS]}) == len(OTHERS) + 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.org", "http://example.org"),
        ("http://example.org:80/", "http://example.org"),
        ("http://example.org/?", "http://example.org"),
        ("http://[2001:DB8::1]:80/a", "http://[2001:db8::1]/a"),
        ("ftp://User:Secret@Host:21/A", "ftp://User:Secret@host/A"),
        ("file:///a/b/", "file:///a/b"),
        ("Boats/", "Boats"),
        ("https://[1/a/", "https://[1/a/"),
        ("#rain", ""),
        ("", ""),
    ],
)
def test_urls_without_some_parts_are_normalized_too(url: str, expected: str) -> None:
    assert normalized_url(url) == expected == normalized_url(expected)


def test_what_is_not_text_is_no_url() -> None:
    assert [url_of(value) for value in (None, 7, ["http://a"], b"http://a", " ", "\ud800")] == [""] * 6
    assert url_of(" http://a/\ud800b ") == "http://a/b"


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ('<doc id="1" url="https://example.org/?a=1&copy=2" title="Boats">', "https://example.org/?a=1&copy=2"),
        ("<doc url='https://example.org/a'>\n", "https://example.org/a"),
        ('<doc url="">', ""),
        ('<doc data-url="https://example.org">', ""),
        ("</doc>", ""),
    ],
)
def test_marks_of_wikiextractor_have_a_url(mark: str, expected: str) -> None:
    assert url_of_mark(mark) == expected
