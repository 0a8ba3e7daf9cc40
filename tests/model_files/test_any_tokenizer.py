"""Any combination of tokenizer files: the ids that `AutoTokenizer` gives, or a refusal in one line; nothing else."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import given

from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.architectures import ARCHITECTURES
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.tokenizer_writing import write_tokenizer
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from model_files.tokenizer_folders import TEXTS, folders, write

QUICK = os.environ.get("HYPOTHESIS_PROFILE", "house") == "house"
SECOND = "the red [WORLD]"


def theirs_of(folder: Path) -> Any:
    """The tokenizer of `transformers`; None if it refuses the folder, in whatever way."""
    import transformers

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer("a", "b")
    except BaseException as error:  # a panic of Rust is not an Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return None
    return tokenizer


def shown(files: dict[str, Any]) -> dict[str, Any]:
    """The files without their pieces, for the report of a failure."""
    file = files["tokenizer.json"]
    return {**files, "tokenizer.json": {**file, "model": {**file["model"], "vocab": "...", "merges": "..."}}}


def rows(ours: Tokenizer, first: str, second: str | None) -> tuple[list[int], list[int]]:
    """(ids, segments) of a row."""
    template = ours.template
    ids = [*template.start, *ours.encode(first, special_tokens="own").tolist()]
    segments = [0] * len(ids)
    if second is None:
        return [*ids, *template.end], segments + [0] * len(template.end)
    ids += template.between
    rest = [*ours.encode(second, special_tokens="own").tolist(), *template.end]
    return ids + rest, [0] * len(ids) + [template.second_segment] * len(rest)


def compare(ours: Tokenizer, theirs: Any, texts: list[str]) -> None:
    for text in texts:
        expected = theirs(text, return_token_type_ids=True)
        assert rows(ours, text, None)[0] == expected["input_ids"], ascii(text)
        # Ordinary text has all added tokens but the special pieces of the model.
        if not any(piece and piece.casefold() in text.casefold() for piece in ours.vocabulary.special):
            assert ours.encode(text).tolist() == ours.encode(text, special_tokens="own").tolist(), ascii(text)
        pair = theirs(text, SECOND, return_token_type_ids=True)
        both = rows(ours, text, SECOND)
        assert both[0] == pair["input_ids"]
        if "token_type_ids" in theirs.model_input_names:
            assert both[1] == pair["token_type_ids"]


@hypothesis.settings(max_examples=80 if QUICK else 4000, suppress_health_check=list(hypothesis.HealthCheck))
@given(files=folders(), texts=TEXTS)
def test_ids_are_those_of_transformers_or_the_folder_is_refused(
    files: dict[str, Any], texts: list[str], quiet_transformers: None
) -> None:
    hypothesis.note(ascii(shown(files)))
    with tempfile.TemporaryDirectory() as name:
        folder, again = Path(name, "read"), Path(name, "written")
        write(folder, files)
        theirs = theirs_of(folder)
        kind = files["config.json"]["model_type"]
        try:
            ours, _ = ARCHITECTURES[kind].read_tokenizer(folder, ModelMetadata())
        except BertsmithError as error:
            assert "\n" not in str(error)  # noqa: PT017 - any of several errors may be raised
            return
        if theirs is None:
            return
        compare(ours, theirs, texts)
        singly = [ours.encode(text).tolist() for text in texts]
        assert [row.tolist() for row in ours.encode_batch(texts)] == singly
        encoded, starts, ends = ours.encode_batch_with_offsets(texts)
        assert [row.tolist() for row in encoded] == singly
        lengths = np.repeat([len(text) for text in texts], encoded.lengths)
        assert np.all((starts >= 0) & (starts <= ends) & (ends <= lengths))
        write_tokenizer(again, ours, BertConfig())
        (again / "config.json").write_text(json.dumps(files["config.json"]), encoding="utf-8")
        back = theirs_of(again)
        compare(ours, back, texts)
        reread, _ = ARCHITECTURES[kind].read_tokenizer(again, ModelMetadata())
        assert (reread.vocabulary, reread.template) == (ours.vocabulary, ours.template)
        assert [row.tolist() for row in reread.encode_batch(texts)] == singly
