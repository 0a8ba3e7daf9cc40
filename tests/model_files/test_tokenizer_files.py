"""Tokenizer files: the same as those of transformers, and read back by both with the same ids."""

import dataclasses
import json
import os
import random
from pathlib import Path

import pytest

from bertsmith.base.core.errors import ConfigError, InputError, VocabularyError
from bertsmith.base.core.settings import to_dict
from bertsmith.base.storage.files import write_json
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.tokenizer_files import read_tokenizer, read_wordpiece
from bertsmith.models.model_files.tokenizer_writing import tokenizer_config, tokenizer_json, write_tokenizer
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import PIECES
from tasks.architecture_samples import EVERY_ARCHITECTURE, config_of, tokenizer_of

RULES = [
    TextRules(),
    TextRules(lowercase=False),
    TextRules(lowercase=True, strip_accents=False),
    TextRules(lowercase=False, strip_accents=True, split_cjk=False),
    TextRules.google(),
    TextRules.google(lowercase=False),
    TextRules(max_word_characters=7),
    TextRules(lowercase=False, split_unspaced=True),
    TextRules.named("unspaced"),
    TextRules(control_rule="google", keep_letter_marks=True),
]
TEXTS = [
    "The man went to the Store, unaffable!",
    "naïve café CAFÉ É",
    "中国a中",
    "a\u00a0b\tb\nb",
    "a\u0000b \ufffd a\u200bb",
    "a\ue000b",
    "ไทยstoreは中မြန်မာ",
    "Sto\u0301re\u0e48 man\u3099 \u1112\u1161\u11abé",
    "[MASK] the [SEP] [CLS]man[PAD]",
    "b" * 99 + " " + "a" * 101 + " " + "a" * 201,
    "",
    "  ",
]


def write_files(folder, tokenizer):
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder, tokenizer, BertConfig(max_position_embeddings=40))


def random_texts(count):
    rng = random.Random(1)
    alphabet = "abé1中国S the!,.É \t\u00a0\u0301\x05\u200b\u2028ß"
    return ["".join(rng.choice(alphabet) for _ in range(rng.randrange(30))) for _ in range(count)]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_transformers_gives_the_same_ids(rules, tmp_path, quiet_transformers):
    import transformers

    tokenizer = WordPieceTokenizer(Vocabulary(PIECES), rules)
    write_files(tmp_path / "x", tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "x")
    for text in TEXTS + random_texts(300):
        ours = tokenizer.encode(text, special_tokens=True).tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours, repr(text)
    both = theirs("the man", "a b")
    assert theirs.convert_ids_to_tokens(both["input_ids"]) == "[CLS] the man [SEP] a b [SEP]".split()
    assert both["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]
    assert (theirs.model_max_length, theirs.mask_token, theirs.pad_token) == (40, "[MASK]", "[PAD]")


@pytest.mark.parametrize("rules", RULES[:4], ids=str)
def test_the_pipeline_is_the_one_that_transformers_saves(rules, tmp_path, quiet_transformers):
    import transformers

    tokenizer = WordPieceTokenizer(Vocabulary(PIECES), rules)
    tokenizer.vocabulary.save(tmp_path / "vocab.txt")
    theirs = transformers.BertTokenizer.from_pretrained(
        tmp_path,
        do_lower_case=rules.lowercase,
        strip_accents=rules.strip_accents,
        tokenize_chinese_chars=rules.split_cjk,
        model_max_length=40,
    )
    theirs.save_pretrained(tmp_path / "theirs")
    saved = json.loads((tmp_path / "theirs" / "tokenizer.json").read_text(encoding="utf-8"))
    assert saved == tokenizer_json(tokenizer)
    switches = json.loads((tmp_path / "theirs" / "tokenizer_config.json").read_text(encoding="utf-8"))
    ours = tokenizer_config(tokenizer, BertConfig(max_position_embeddings=40))
    assert {key: switches[key] for key in ours if key != "model_input_names"} == {
        key: value for key, value in ours.items() if key != "model_input_names"
    }


@pytest.mark.parametrize("rules", RULES[:4], ids=str)
def test_rules_are_read_from_the_files_of_other_tools(rules, tmp_path):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES), rules))
    assert read_wordpiece(tmp_path, ModelMetadata())[0].rules == rules
    (tmp_path / "tokenizer_config.json").unlink()
    assert read_wordpiece(tmp_path, ModelMetadata())[0].rules == rules
    (tmp_path / "vocab.txt").unlink()
    tokenizer, notes = read_wordpiece(tmp_path, ModelMetadata())
    assert (tokenizer.rules, tokenizer.vocabulary.pieces, notes) == (rules, tuple(PIECES), [])


def test_rules_that_keep_letter_marks_are_read_from_either_file(tmp_path):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES), TextRules.named("unspaced")))
    assert read_wordpiece(tmp_path, ModelMetadata())[0].rules == TextRules.named("unspaced")
    (tmp_path / "tokenizer_config.json").unlink()
    rules = read_wordpiece(tmp_path, ModelMetadata())[0].rules
    assert (rules.lowercase, rules.split_unspaced, rules.keeps_letter_marks) == (True, True, True)
    description = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    description["normalizer"]["normalizers"].append({"type": "Lowercase"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
    tokenizer, _ = read_wordpiece(tmp_path, ModelMetadata())
    assert isinstance(tokenizer, PipelineTokenizer), "steps that are not rules are run as they are"
    assert tokenizer.encode("THE man").tolist() == [PIECES.index("the"), PIECES.index("man")]


def test_the_metadata_takes_precedence_over_other_files(tmp_path):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES), TextRules()))
    rules = TextRules.google(lowercase=False)
    assert read_wordpiece(tmp_path, ModelMetadata.from_dict({"text_rules": to_dict(rules)}))[0].rules == rules
    with pytest.raises(ConfigError, match="did you mean 'lowercase'"):
        read_wordpiece(tmp_path, ModelMetadata.from_dict({"text_rules": {"lower_case": True}}))
    with pytest.raises(InputError, match="text_rules"):
        read_wordpiece(tmp_path, ModelMetadata.from_dict({"text_rules": 3}))


def test_the_class_of_the_architecture_takes_precedence_over_the_rules_in_tokenizer_json_with_a_note(tmp_path):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES), TextRules(lowercase=False)))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert read_wordpiece(tmp_path, ModelMetadata())[1] == []
    (tmp_path / "tokenizer_config.json").unlink()
    tokenizer, notes = read_wordpiece(tmp_path, ModelMetadata())
    assert tokenizer.rules.lowercase, "as AutoTokenizer does"
    assert notes == [
        "text is cleaned by the rules of the tokenizer_class (lower-cased), not by those in tokenizer.json"
    ]


@pytest.mark.parametrize("pieces", [PIECES, [piece for piece in PIECES if piece != "Store"]])
@pytest.mark.parametrize("config", [None, {}, {"tokenize_chinese_chars": False}, {"strip_accents": False}])
def test_a_bare_vocabulary_is_read_as_transformers_reads_it_which_is_reported(tmp_path, pieces, config):
    Vocabulary(pieces).save(tmp_path / "vocab.txt")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": len(pieces)}))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer, notes = read_wordpiece(tmp_path, ModelMetadata())
    import transformers

    owner = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert tokenizer.encode(text, special_tokens=True).tolist() == owner.encode(text, add_special_tokens=False), (
            text
        )
    (note,) = notes
    assert note.startswith("no file says how text is cleaned: it is lower-cased, as transformers does")
    assert ("but the vocabulary has capital letters" in note) == ("Store" in pieces)


@pytest.mark.parametrize("entries", ["x", ["x"], [{"content": "x"}], [{"content": "x", "id": "5"}], {"content": "x"}])
@pytest.mark.parametrize("config", [{}, {"tokenizer_class": "PreTrainedTokenizerFast"}])
def test_added_tokens_without_ids_are_refused(tmp_path, entries, config):
    description = tokenizer_json(WordPieceTokenizer(Vocabulary(PIECES)))
    (tmp_path / "tokenizer.json").write_text(json.dumps({**description, "added_tokens": entries}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(VocabularyError, match="expected added tokens by their ids"):
        read_tokenizer(tmp_path, ModelMetadata())


def test_a_folder_without_a_vocabulary_has_no_tokenizer(tmp_path):
    assert read_wordpiece(tmp_path, ModelMetadata()) == (None, [])


def test_vocabularies_that_disagree_are_refused(tmp_path):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES)))
    Vocabulary([*PIECES[:-1], "other"]).save(tmp_path / "vocab.txt")
    with pytest.raises(VocabularyError, match=r"same pieces in vocab.txt and tokenizer.json"):
        read_wordpiece(tmp_path, ModelMetadata())


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_vocabulary_alone_shows_which_kind_it_is(line_end, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(line_end.join(PIECES).encode())
    result, _ = read_tokenizer(tmp_path, ModelMetadata())
    assert isinstance(result, WordPieceTokenizer)
    (tmp_path / "vocab.txt").write_bytes(line_end.join(PIECES).encode() + b"\xff\xfe")
    with pytest.raises(VocabularyError, match="expected UTF-8 in"):
        read_tokenizer(tmp_path, ModelMetadata())
    (tmp_path / "vocab.txt").write_text("<s>\n</s>\n")
    with pytest.raises(VocabularyError, match=r"a tokenizer.json in .* for a vocab.txt without \[CLS\]"):
        read_tokenizer(tmp_path, ModelMetadata())


def test_pieces_added_by_other_tools_are_at_the_end(tmp_path):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES)))
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"].append({"id": len(PIECES), "content": "[NEW]", "special": False})
    write_json(tmp_path / "tokenizer.json", content)
    assert read_wordpiece(tmp_path, ModelMetadata())[0].vocabulary.pieces == (*PIECES, "[NEW]")
    content["added_tokens"][-1]["id"] = len(PIECES) + 3
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(VocabularyError, match="each once"):
        read_wordpiece(tmp_path, ModelMetadata())


@pytest.mark.parametrize(
    "name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
)
def test_a_pipe_in_place_of_a_file_is_refused_instead_of_waited_for(tmp_path, name):
    write_files(tmp_path, WordPieceTokenizer(Vocabulary(PIECES)))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="a device or a pipe"):
        read_tokenizer(tmp_path, ModelMetadata())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", "[1]"),
        ("tokenizer_config.json", "{"),
        ("tokenizer.json", "3"),
        ("tokenizer_config.json", '{"do_lower_case": "yes"}'),
        ("tokenizer_config.json", '{"do_lower_case": 1}'),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    Vocabulary(PIECES).save(tmp_path / "vocab.txt")
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError):
        read_wordpiece(tmp_path, ModelMetadata())


@pytest.mark.parametrize(
    "content",
    [
        {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "a": 0}}},
        {"model": {"type": "WordPiece", "vocab": {"[PAD]": "0"}}},
        {"model": {"type": "WordPiece", "vocab": {"[PAD]": True}}},
        {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0}}},
    ],
)
def test_a_tokenizer_file_with_a_bad_vocabulary_is_refused(tmp_path, content):
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(VocabularyError):
        read_wordpiece(tmp_path, ModelMetadata())


@pytest.mark.parametrize("left_out", ["tokenizer_config.json", "tokenizer.json"])
def test_splitting_of_scripts_without_spaces_is_read_from_either_file(left_out, tmp_path):
    rules = TextRules(lowercase=False, split_unspaced=True)
    write_files(tmp_path / "x", WordPieceTokenizer(Vocabulary(PIECES), rules))
    (tmp_path / "x" / left_out).unlink()
    read, notes = read_wordpiece(tmp_path / "x", ModelMetadata())
    assert read.rules == rules
    assert notes == []


@pytest.mark.parametrize("kind", ["bert", "albert", "xlm-roberta", "mpnet", "deberta-v2"])
@pytest.mark.parametrize("architecture", [*EVERY_ARCHITECTURE, "xlm-roberta"])
def test_every_architecture_is_read_back_with_any_tokenizer(architecture: str, kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(kind)
    config = dataclasses.replace(config_of(architecture), vocab_size=len(tokenizer.vocabulary))
    if config.spells_pieces and kind != "bert":
        pytest.skip("it reads how a WordPiece is spelled")
    model = untrained(config, 1, tokenizer.vocabulary)
    save_pretrained(tmp_path / "model", model, tokenizer, ModelMetadata(task="pretraining"))
    result = load_any(tmp_path / "model").require_tokenizer()
    assert result.vocabulary.digest == tokenizer.vocabulary.digest
    assert result.vocabulary.special == tokenizer.vocabulary.special
    assert [ids.tolist() for ids in result.encode_batch(TEXTS)] == [
        ids.tolist() for ids in tokenizer.encode_batch(TEXTS)
    ]
