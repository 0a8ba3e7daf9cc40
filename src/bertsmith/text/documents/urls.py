"""URLs of documents, and when two of them are the same."""

import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

URL_COLUMN = "url"  # of the records of most corpora from the web, such as C4, FineWeb and the dumps of Wikipedia
_DEFAULT_PORTS = {"http": "80", "https": "443", "ftp": "21"}
_IN_MARK = re.compile(r"""\surl=(?:"([^"]*)"|'([^']*)')""")


def url_of(value: Any) -> str:
    """A URL as it was found, without white space around it and without lone surrogates; "" if it is not text.

    >>> url_of(" https://example.org/a "), url_of(None), url_of(7)
    ('https://example.org/a', '', '')
    """
    return value.strip().encode("utf-8", "ignore").decode("utf-8") if isinstance(value, str) else ""


def url_of_mark(mark: str) -> str:
    """The URL in a line `<doc ...>` of WikiExtractor; "" if it has none.

    >>> url_of_mark('<doc id="12" url="https://example.org/?id=12" title="Boats">')
    'https://example.org/?id=12'
    """
    match = _IN_MARK.search(mark)
    return url_of(match[1] or match[2]) if match else ""


def normalized_url(url: str) -> str:
    """A URL in the form in which two are compared.

    Scheme and host are in lower case. What is dropped: the default port of http, https and ftp, the fragment, an empty
    query, and slashes at the end of the path. Everything else counts: http or https, `www.`, letters in the path, and
    the order of the query. Without scheme and host, only the fragment, the empty query and the slashes are dropped.

    >>> normalized_url("HTTPS://Example.org:443/Boats/?id=1#rain")
    'https://example.org/Boats?id=1'
    >>> normalized_url("example.org/Boats/")
    'example.org/Boats'
    """
    text = url_of(url)
    try:
        scheme, server, path, query, _ = urlsplit(text)
    except ValueError:  # such as an IPv6 address without its bracket
        return text
    user, at, host = server.rpartition("@")
    host = host.lower().removesuffix(":").removesuffix(f":{_DEFAULT_PORTS.get(scheme, '')}")
    return urlunsplit((scheme, f"{user}{at}{host}", path.rstrip("/"), query, ""))
