"""Addresses such as `s3://bucket/texts`, and their parts.

A path on a local disk is never one. `remote` reads what is at an address, `uploads` writes it.
"""

import re
from pathlib import Path

SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "az", "hdfs", "memory", "file")
# A path object has only one slash left of the two.
_ADDRESS = re.compile(rf"(?P<scheme>{'|'.join(SCHEMES)}):/+(?P<rest>.*)", re.DOTALL)


def address_of(path: Path | str) -> str | None:
    """The address that a path is; None if it is a path on a local disk.

    >>> address_of("s3://bucket/a.txt"), address_of(Path("s3://bucket/a.txt")), address_of("file:///tmp/a.txt")
    ('s3://bucket/a.txt', 's3://bucket/a.txt', 'file:///tmp/a.txt')
    >>> address_of("texts/a.txt")
    """
    match = _ADDRESS.fullmatch(str(path))
    if match is None:
        return None
    return f"{match['scheme']}://{'/' if match['scheme'] == 'file' else ''}{match['rest']}"


def scheme_of(address: str) -> str:
    """The part of an address before `://`, which says how it is read.

    >>> scheme_of("s3://bucket/a.txt")
    's3'
    """
    return address.partition("://")[0]


def name_of(address: str) -> str:
    """The last part of an address, the name of a file or folder.

    >>> name_of("s3://bucket/texts/a.txt"), name_of("s3://bucket/texts/")
    ('a.txt', 'texts')
    """
    return address.rstrip("/").rsplit("/", 1)[-1]


def lacks_host(path: str) -> bool:
    """Whether a text is an address that needs a host, and has none. A path object has lost the difference.

    >>> lacks_host("hdfs:///user/x"), lacks_host("hdfs://host/user/x")
    (True, False)
    """
    return path.startswith("hdfs:///")


def lacks_name(address: str) -> bool:
    """Whether an address names a whole bucket or host, without the name of a file or folder in it.

    >>> lacks_name("s3://bucket"), lacks_name("s3://bucket/"), lacks_name("s3://bucket/x.npy")
    (True, True, False)
    """
    scheme, _, rest = address.partition("://")
    return scheme not in ("memory", "file") and "/" not in rest.strip("/")
