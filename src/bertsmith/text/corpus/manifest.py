"""The manifest of a corpus, and the names of the files next to it."""

from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import BertsmithError, CorpusError, InputError
from bertsmith.base.storage.files import misfit, read_json, require_format
from bertsmith.text.tokenizers.vocabulary import SpecialPieces

KIND = "bertsmith-corpus"
# What is read of a manifest, see `misfit`.
_SHAPE = {
    "vocabulary": {"digest": str},
    "tokenizer": {},
    "pipeline?": {"digest": str, "special": dict.fromkeys(SpecialPieces._fields, str)},
    "read": {"words": int, "divisions": {"*": int}},
    "settings": {"form?": str},
    "held_out?": {"documents?": int, "tokens?": int, "share?": float},
    "removed?": {
        "file": str,
        "duplicates?": {
            **dict.fromkeys(("documents", "copies", "sentences", "tokens"), int),
            "documents_without_url?": int,
        },
        "boilerplate?": {
            **dict.fromkeys(("least_documents", "different_sentences", "sentences", "tokens"), int),
            "removed_documents": int,
            "most_frequent": [{"text": str, "documents": int}],
        },
    },
    "languages?": {
        "exponent": float,
        "by_name": {
            "*": {
                **dict.fromkeys(("tokens", "words", "characters", "unknown", "training_tokens", "sampled_tokens"), int),
                **dict.fromkeys(("share_of_text", "share"), float),
            }
        },
    },
    "shards": [{"file": str, "documents": int, "sentences": int, "tokens": int, "bytes": int, "digest": str}],
}
MANIFEST, VOCABULARY, INPUTS, HELD_OUT = "corpus.json", "vocab.txt", "inputs.jsonl", "held_out"
PIPELINE = "tokenizer.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of the corpus in a folder."""
    path = folder / MANIFEST
    if not path.is_file():
        problem = f"no {MANIFEST} in it" if folder.is_dir() else "a file" if folder.is_file() else "no such folder"
        raise CorpusError(
            expected=f"a corpus at '{folder}'",
            found=problem,
            fix="build one with `bertsmith corpus`, or check the path",
        )
    try:
        manifest = read_json(path)
    except BertsmithError as error:
        raise CorpusError(expected=error.expected, found=error.found, fix="build the corpus again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != KIND:
        raise CorpusError(
            expected=f"the manifest of a corpus in '{path}'", found="something else", fix="build it again"
        )
    try:
        require_format(manifest, path, "version")
    except InputError as error:
        raise CorpusError(expected=error.expected, found=error.found, fix="build the corpus again") from None
    if problem := misfit(manifest, _SHAPE):
        raise CorpusError(
            expected=f"the manifest of a corpus in '{path}'", found=problem, fix="restore it, or build the corpus again"
        )
    return dict(manifest)
