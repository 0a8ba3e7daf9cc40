"""Model files of SentencePiece without a tokenizer.json: the ids of transformers, other kinds of models, damage."""

import base64
import json
import struct
from pathlib import Path

import pytest
import transformers

from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.models.checkpoints.architectures import ARCHITECTURES
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.sentencepiece_file import read_sentencepiece
from oracles.double_array import packed
from tasks.architecture_samples import peer_tokenizer, unigram_pieces

TEXTS = ["The film was ``great''", "anna and bert  in Rome ?", "naïve ﬁlm 中国", "", "a" * 30]


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def write_model(path: Path, pieces: list[tuple[str, float]], *, kind: int = 1, table: bytes = b"") -> None:
    """Writes a message with pieces, the kind of the model and the table of normalization."""
    data = b"".join(
        field(1, field(1, piece.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)) for piece, score in pieces
    )
    data += field(2, varint(3 << 3) + varint(kind) + field(7, b"other")) + field(3, field(2, table) if table else b"")
    path.write_bytes(data)


def test_an_albert_with_a_model_file_has_the_ids_of_transformers(tmp_path: Path) -> None:
    write_model(tmp_path / "spiece.model", unigram_pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]))
    result, _ = ARCHITECTURES["albert"].read_tokenizer(tmp_path, ModelMetadata())
    expected = peer_tokenizer("albert")(TEXTS, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in result.encode_batch(TEXTS)] == expected
    pair = peer_tokenizer("albert")("a", "b")["input_ids"]
    assert (*result.template.start, *result.template.between, *result.template.end) == (pair[0], pair[2], pair[-1])
    assert result.rules.lowercase


def test_an_xlm_roberta_with_a_model_file_has_the_ids_of_transformers(tmp_path: Path) -> None:
    # The file has the order of SentencePiece; the model has that of fairseq.
    pieces = unigram_pieces(["<unk>", "<s>", "</s>"])
    write_model(tmp_path / "sentencepiece.bpe.model", pieces)
    result, _ = ARCHITECTURES["xlm-roberta"].read_tokenizer(tmp_path, ModelMetadata())
    peer = peer_tokenizer("xlm-roberta")
    assert [ids.tolist() for ids in result.encode_batch(TEXTS)] == peer(TEXTS, add_special_tokens=False)["input_ids"]
    assert (result.vocabulary.mask_id, result.template.between) == (peer.mask_token_id, (2, 2))


def test_the_table_of_normalization_is_applied(tmp_path: Path) -> None:
    pieces = unigram_pieces(["<unk>", "<s>", "</s>"])
    write_model(tmp_path / "sentencepiece.bpe.model", pieces, table=base64.b64decode(packed({"ﬁ": "fi"})))
    result, _ = ARCHITECTURES["xlm-roberta"].read_tokenizer(tmp_path, ModelMetadata())
    assert result.tokenize("ﬁlm") == ["▁film"]


def test_the_switches_of_an_albert_are_read(tmp_path: Path) -> None:
    write_model(tmp_path / "spiece.model", unigram_pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    result, _ = ARCHITECTURES["albert"].read_tokenizer(tmp_path, ModelMetadata())
    assert not result.rules.lowercase
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": 3}')
    with pytest.raises(InputError, match="true or false for keep_accents"):
        ARCHITECTURES["albert"].read_tokenizer(tmp_path, ModelMetadata())


def test_a_comma_after_a_digit_is_a_piece_of_its_own_in_an_albert(tmp_path: Path) -> None:
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    write_model(tmp_path / "spiece.model", [*unigram_pieces(special), ("9,", -1.0), ("m,", -1.0)])
    result, _ = ARCHITECTURES["albert"].read_tokenizer(tmp_path, ModelMetadata())
    assert result.tokenize("9,") == ["\u2581", "9", ","]
    assert result.tokenize("m,") == ["\u2581", "m,"]


@pytest.mark.parametrize(
    "switches", [{}, {"do_lower_case": True}, {"add_prefix_space": False}, {"split_by_punct": True}]
)
def test_a_deberta_with_a_model_file_has_the_ids_of_transformers(switches: dict[str, bool], tmp_path: Path) -> None:
    """A table of normalization is left out, and a mask that the file lacks is added, as there."""
    pieces = unigram_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    write_model(tmp_path / "spm.model", pieces, table=base64.b64decode(packed({"ﬁ": "fi"})))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(switches))
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    result, _ = ARCHITECTURES["deberta-v2"].read_tokenizer(tmp_path, ModelMetadata())
    peer = transformers.DebertaV2Tokenizer(vocab=pieces, **switches)
    texts = [*TEXTS, " Bert's\tfilm,  so-so!\n", "\u3000the\u00a0 film\u2009"]
    assert [ids.tolist() for ids in result.encode_batch(texts)] == peer(texts, add_special_tokens=False)["input_ids"]
    assert result.vocabulary.mask_id == peer.mask_token_id == len(pieces)
    pair = peer("a", "b")
    assert (*result.template.start, *result.template.between, *result.template.end) == (1, 2, 2)
    assert pair["token_type_ids"][-1] == result.template.second_segment == 1


def test_a_deberta_without_the_pieces_of_a_row_is_one_line(tmp_path: Path) -> None:
    write_model(tmp_path / "spm.model", unigram_pieces(["[PAD]", "[UNK]"]))
    with pytest.raises(
        CheckpointError, match=r"expected \[CLS\] and \[SEP\] among the pieces of .*spm.model'; found no"
    ):
        ARCHITECTURES["deberta-v2"].read_tokenizer(tmp_path, ModelMetadata())


@pytest.mark.parametrize("content", [b"", b"text", b"\x0a\xff\xff", b"\x0a\x05abcde", b"\xff" * 12])
def test_a_damaged_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(CheckpointError, match="a model of SentencePiece in"):
        read_sentencepiece(tmp_path / "spiece.model")


def test_a_model_of_another_kind_says_what_is_needed(tmp_path: Path) -> None:
    write_model(tmp_path / "spiece.model", [("<unk>", 0.0), ("a", -1.0)], kind=2)
    with pytest.raises(
        CheckpointError, match=r"Unigram pieces in .*; found another kind of model; put the tokenizer\.json"
    ):
        read_sentencepiece(tmp_path / "spiece.model")
