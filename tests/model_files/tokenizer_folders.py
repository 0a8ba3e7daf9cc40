"""Random tokenizer folders: combinations of steps, pieces, templates, added tokens and settings."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LETTERS = "abcdehlorw0123456789.,-'[]中é"
WORDS = ["hello", "world", "covid", "the", "##s", "##ld", "##19", "▁", "▁hello", "▁the", "Ġthe", "Ġ", "lo"]
ADDED = ["[WORLD]", "covid-19", "é", "Hello", "world", "the red", "##s", "中", "a", "<x>", "[SEP]", " b", "l", "ll"]
ALPHABET = st.sampled_from(
    [
        *"abcdehlorwABHL0129.,-'[]#中éÉ \t\n",
        *ADDED,
        *SPECIALS,
        "covid-19",
        "COVID",
        "\u0301",
        "\u00a0",
        "\u200d",
        "ﬁ",
        "İ",
        "Ⅷ",
        "ก็",
        "😀",
        "ß",
    ]
)
TEXTS = st.lists(st.lists(ALPHABET, max_size=12).map("".join) | st.text(max_size=8), min_size=3, max_size=6)
FLAGS = st.booleans()


def _pieces() -> list[str]:
    return [*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS]


@st.composite
def wordpieces(draw: Any) -> Any:
    ids = {piece: id for id, piece in enumerate(_pieces())}
    unknown = draw(st.sampled_from(["[UNK]", "[UNK]", "[UNK]", "<unk>"]))
    prefix = draw(st.sampled_from(["##", "##", "##", "l"]))
    longest = draw(st.sampled_from([100, 100, 200, 3]))
    return models.WordPiece(ids, unk_token=unknown, continuing_subword_prefix=prefix, max_input_chars_per_word=longest)


@st.composite
def byte_pairs(draw: Any) -> Any:
    ids = {piece: id for id, piece in enumerate(_pieces())}
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        ids.setdefault(letter, len(ids))
    for pair in ("he", "ll", "th"):
        ids[pair] = len(ids)
    options = {"unk_token": draw(st.sampled_from([None, "<unk>", "[UNK]"])), "fuse_unk": draw(FLAGS)}
    options["ignore_merges"] = draw(FLAGS)
    if draw(st.sampled_from([False] * 9 + [True])):
        options["dropout"] = 0.5
    return models.BPE(ids, [("h", "e"), ("l", "l"), ("t", "h")], **options)


@st.composite
def unigrams(draw: Any) -> Any:
    pieces = [(piece, -float(1 + number % 17)) for number, piece in enumerate(_pieces())]
    return models.Unigram(
        pieces, unk_id=draw(st.sampled_from([1, 3, 8])), byte_fallback=draw(st.sampled_from([False, False, True]))
    )


BERT_NORMALIZERS = st.builds(
    normalizers.BertNormalizer,
    clean_text=st.sampled_from([True, True, False]),
    handle_chinese_chars=FLAGS,
    strip_accents=st.sampled_from([None, True, False]),
    lowercase=FLAGS,
)
OTHER_NORMALIZERS = st.sampled_from(
    [
        normalizers.NFC(),
        normalizers.NFD(),
        normalizers.NFKC(),
        normalizers.NFKD(),
        normalizers.Lowercase(),
        normalizers.StripAccents(),
        normalizers.Strip(),
        normalizers.Replace("l", "w"),
        normalizers.Replace(" ", "▁"),
        normalizers.Prepend("▁"),
        normalizers.Nmt(),
    ]
)
NORMALIZERS = (
    BERT_NORMALIZERS
    | st.none()
    | st.lists(OTHER_NORMALIZERS | BERT_NORMALIZERS, min_size=1, max_size=3).map(normalizers.Sequence)
)
BERT_SPLITTERS = st.just(pre_tokenizers.BertPreTokenizer())
OTHER_SPLITTERS = st.sampled_from(
    [
        pre_tokenizers.Whitespace(),
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Punctuation(),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.UnicodeScripts(),
        pre_tokenizers.CharDelimiterSplit("l"),
        pre_tokenizers.Split("e", "isolated"),
    ]
)
UNIGRAM_SPLITTERS = st.sampled_from(
    [
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
    ]
)
SPLITTERS = (
    BERT_SPLITTERS
    | UNIGRAM_SPLITTERS
    | st.none()
    | st.lists(OTHER_SPLITTERS | BERT_SPLITTERS, min_size=1, max_size=3).map(pre_tokenizers.Sequence)
)
_CLS, _SEP = ("[CLS]", 2), ("[SEP]", 3)


def _template(single: str, pair: str) -> Any:
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=[_CLS, _SEP])


BERT_TEMPLATE = _template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
TEMPLATES = st.sampled_from(
    [
        BERT_TEMPLATE,
        BERT_TEMPLATE,
        processors.BertProcessing(_SEP, _CLS),
        processors.RobertaProcessing(_SEP, _CLS),
        _template("[CLS] $A", "[CLS] $A $B:1"),
        _template("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
        _template("$A [SEP]", "$A [SEP] $B:1 [SEP]:1"),
        _template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:0"),
        _template("[CLS] $A [SEP]", "[CLS] $B [SEP] $A:1 [SEP]:1"),
        _template("[CLS] $A", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        processors.Sequence([processors.ByteLevel(trim_offsets=False), BERT_TEMPLATE]),
        None,
    ]
)
TOKENS = st.builds(
    AddedToken,
    st.sampled_from(ADDED),
    single_word=FLAGS,
    lstrip=FLAGS,
    rstrip=FLAGS,
    normalized=FLAGS,
    special=FLAGS,
)


@st.composite
def tokenizers_of(draw: Any) -> Tokenizer:
    """A tokenizer of any steps; half of them have those of BERT."""
    is_bert = draw(FLAGS)
    model = draw(wordpieces() if is_bert else wordpieces() | byte_pairs() | unigrams())
    made = Tokenizer(model)
    normalizer = draw(BERT_NORMALIZERS if is_bert else NORMALIZERS)
    splitter = draw(BERT_SPLITTERS if is_bert else SPLITTERS)
    if isinstance(model, models.Unigram) and draw(FLAGS):
        splitter = draw(UNIGRAM_SPLITTERS)
        from tokenizers import decoders

        made.decoder = decoders.Metaspace()
    if normalizer is not None:
        made.normalizer = normalizer
    if splitter is not None:
        made.pre_tokenizer = splitter
    template = BERT_TEMPLATE if is_bert and draw(FLAGS) else draw(TEMPLATES)
    if template is not None:
        made.post_processor = template
    if draw(st.sampled_from([True, True, False])):
        made.add_special_tokens(SPECIALS)
    for token in draw(st.lists(TOKENS, max_size=4)):
        made.add_tokens([token])
    return made


CLASSES = st.sampled_from(
    [
        None,
        "BertTokenizer",
        "BertTokenizerFast",
        "PreTrainedTokenizerFast",
        "PreTrainedTokenizerFast",
        "TokenizersBackend",
        "XLMRobertaTokenizer",
        "RobertaTokenizerFast",
        "AlbertTokenizer",
        "MPNetTokenizer",
        "DebertaV2Tokenizer",
        "BertJapaneseTokenizer",
    ]
)
FITTING = {
    "WordPiece": ["BertTokenizer", "MPNetTokenizer", "PreTrainedTokenizerFast"],
    "BPE": ["RobertaTokenizer", "PreTrainedTokenizerFast"],
    "Unigram": ["XLMRobertaTokenizer", "AlbertTokenizer", "DebertaV2Tokenizer", "PreTrainedTokenizerFast"],
}
NAMED = {
    "bert": dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIALS, strict=False)),
    "roberta": {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
}
TYPES = st.sampled_from(
    [
        "bert",
        "bert",
        "bert",
        "distilbert",
        "electra",
        "roberta",
        "xlm-roberta",
        "albert",
        "mpnet",
        "modernbert",
        "deberta-v2",
    ]
)


def _json_of(token: AddedToken) -> dict[str, Any]:
    return {"content": token.content} | {
        name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
    }


@st.composite
def folders(draw: Any) -> dict[str, Any]:
    """The files of a folder, by name, as JSON values."""
    made = draw(tokenizers_of())
    files: dict[str, Any] = {"config.json": {"model_type": draw(TYPES)}, "tokenizer.json": json.loads(made.to_str())}
    if draw(st.sampled_from([True] * 7 + [False])):
        config: dict[str, Any] = {}
        fitting = FITTING[files["tokenizer.json"]["model"]["type"]]
        chosen = draw(CLASSES if draw(st.sampled_from([False, False, True])) else st.sampled_from(fitting))
        if chosen is not None:
            config["tokenizer_class"] = chosen
        for name in ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "split_by_punct", "add_prefix_space"):
            if draw(FLAGS):
                config[name] = draw(FLAGS)
        if draw(st.sampled_from([False, False, True])):
            config |= {"do_basic_tokenize": False, "never_split": ["hello"], "max_len": 512}
        if draw(FLAGS):
            named = draw(st.sampled_from([NAMED["bert"], NAMED["bert"], NAMED["roberta"]]))
            config |= {f"{field}_token": piece for field, piece in named.items()}
        if draw(FLAGS):
            decoder = made.get_added_tokens_decoder()
            config["added_tokens_decoder"] = {str(id): _json_of(token) for id, token in decoder.items()}
        if draw(st.sampled_from([False, False, True])):
            name = draw(st.sampled_from(["extra_special_tokens", "additional_special_tokens"]))
            config[name] = draw(st.lists(st.sampled_from(ADDED), max_size=2, unique=True))
        files["tokenizer_config.json"] = config
    if draw(st.sampled_from([False, False, True])):
        files["special_tokens_map.json"] = {"mask_token": _json_of(AddedToken("[MASK]", lstrip=draw(FLAGS)))}
        if draw(FLAGS):
            files["special_tokens_map.json"]["additional_special_tokens"] = ["<x>"]
    if draw(st.sampled_from([False, False, True])):
        id = made.get_vocab_size()
        names = draw(st.lists(st.sampled_from([*ADDED, "[NEW]"]), max_size=2, unique=True))
        files["added_tokens.json"] = {
            name: made.token_to_id(name) if made.token_to_id(name) is not None else id for name in names
        }
    return files


def write(folder: Path, files: dict[str, Any]) -> None:
    """Writes the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
