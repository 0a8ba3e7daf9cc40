"""Text in every layout that is read, and the digests of what is made of it."""

import gzip
import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.samples import WORDS


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 14))) + "."


def document(draw: random.Random) -> list[str]:
    return [sentence(draw) for _ in range(draw.randint(1, 9))]


def write_texts(folder: Path, documents: int = 60, large: int = 0) -> Path:
    """A folder with a file of every kind; `large` is the number of documents of one more file.

    Records have URLs, some of which repeat; those in the column `page` repeat more often.
    """
    draw = random.Random(documents)
    folder.mkdir(parents=True)
    lines = "\n\n".join("\n".join(document(draw)) for _ in range(documents))
    (folder / "a-lines.txt").write_text(lines)
    (folder / "b-prose.txt.gz").write_bytes(gzip.compress(" ".join(document(draw)).encode(), mtime=0))
    records = [
        json.dumps(
            {
                "text": " ".join(document(draw)),
                "url": f"https://Example.org/{number % 40}/",
                "page": f"http://a/{number % 30}",
            }
        )
        for number in range(documents)
    ]
    (folder / "c.jsonl").write_text("\n".join(records))
    (folder / "d.bin").write_bytes(b"\0\1")
    urls = [f"https://example.org:443/{number}#{number}" if number % 3 else None for number in range(documents)]
    pages = [f"http://a/{number % 35}" for number in range(documents)]
    table = pa.table({"url": urls, "page": pages, "sentences": [document(draw) for _ in range(documents)]})
    pq.write_table(table, folder / "e.parquet")
    (folder / "f-copy.txt").write_text(lines)
    if large:
        (folder / "large.txt").write_text("\n\n".join("\n".join(document(draw)) for _ in range(large)))
    return folder


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
