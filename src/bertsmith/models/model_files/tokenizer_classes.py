"""The tokenizer that a folder describes to `transformers`: its class, the switches of the class, its added tokens.

`AutoTokenizer` of transformers 5 takes `tokenizer.json` as it is only if `tokenizer_config.json` names the general
class. Other classes build their steps from their own switches and take no more from the file than the pieces, and some
of them the template of a row. Added tokens come from `tokenizer_config.json`; if they are not there, from
`special_tokens_map.json`, `added_tokens.json` and `tokenizer.json`.

Source: `AutoTokenizer`, `PreTrainedTokenizerBase._from_pretrained` and `TokenizersBackend` of transformers 5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.base.core.errors import CheckpointError, InputError, VocabularyError
from bertsmith.base.storage.files import read_object
from bertsmith.models.model_files.bpe_json import byte_level_json, gpt_json, roberta_processor, wordpiece_json
from bertsmith.models.model_files.row_json import (
    ADDED_TOKENS,
    BYTE_LEVEL,
    ONLY_UNKNOWN,
    PIPELINE,
    SPECIAL_MAP,
    SWITCHES,
)
from bertsmith.models.model_files.sentencepiece_file import (
    OF_ALBERT,
    albert_steps,
    deberta_json,
    unigram_json,
    xlm_roberta_template,
)
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, UNK, SpecialPieces

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_GENERAL = ("PreTrainedTokenizer", "TokenizersBackend")
_ENDS = (BYTE_LEVEL.cls, BYTE_LEVEL.sep)
_OF_MPNET = BYTE_LEVEL._replace(unk=UNK)

Json = dict[str, Any]


class Switches:
    """The settings in a `tokenizer_config.json`, with their types checked."""

    def __init__(self, values: Json, path: Path) -> None:
        self.values, self._path = values, path

    def flag(self, name: str, default: bool | None) -> bool | None:
        """A setting that is true or false; null and absence mean the default."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise InputError(
                expected=f"true or false for {name} in '{self._path}'", found=repr(value), fix="correct it"
            )
        return default if value is None else value

    def is_on(self, name: str, default: bool) -> bool:
        """The same for a setting with a default."""
        return bool(self.flag(name, default))

    def id(self, name: str, default: int) -> int:
        """A setting that is the id of a piece."""
        value = self.values.get(name, default)
        if type(value) is not int or value < 0:
            raise InputError(expected=f"an id for {name} in '{self._path}'", found=repr(value)[:60], fix="correct it")
        return value


class TokenizerClass(NamedTuple):
    """A class of `transformers` that builds its own steps.

    Attributes:
        build: returns the description, given the one in the file, the switches, and the special pieces: of a row,
            and the same with the pieces for the ends of a text around a row.
    """

    special: SpecialPieces
    model: str
    ends: tuple[str, str]
    build: Callable[[Json, Switches, SpecialPieces, SpecialPieces], Json]

    @property
    def tokens(self) -> dict[str, str]:
        """Its pieces by their names in `tokenizer_config.json`."""
        ends = dict(zip(("bos", "eos"), self.ends, strict=True))
        return {f"{name}_token": piece for name, piece in (ends | self.special._asdict()).items() if piece}


def bert_rules(switches: Switches) -> TextRules:
    """The text rules of `BertTokenizer`."""
    return TextRules(
        lowercase=switches.is_on("do_lower_case", True),
        strip_accents=switches.flag("strip_accents", None),
        split_cjk=switches.is_on("tokenize_chinese_chars", True),
    )


def _bert(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    return wordpiece_json(file["model"]["vocab"], bert_rules(switches), special)


def _mpnet(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    ids = file["model"]["vocab"]
    return {
        **wordpiece_json(ids, bert_rules(switches), special),
        "post_processor": roberta_processor(ids, special),
    }


def _roberta(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    built = byte_level_json(
        file["model"]["vocab"],
        file["model"].get("merges") or [],
        special,
        is_spaced=switches.is_on("add_prefix_space", False),
    )
    return {**built, "added_tokens": []}


def _gpt(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    return {
        **gpt_json(file["model"]["vocab"], file["model"].get("merges") or []),
        "added_tokens": [],
        "post_processor": file.get("post_processor"),
    }


def _albert(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    steps = albert_steps(
        lowercase=switches.is_on("do_lower_case", True), keep_accents=switches.is_on("keep_accents", False)
    )
    return {
        **unigram_json(
            file["model"]["vocab"], 1, [*steps, *_tables(file)], is_spaced=switches.is_on("add_prefix_space", True)
        ),
        "post_processor": file.get("post_processor"),
    }


def _xlm_roberta(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    vocab = file["model"]["vocab"]
    built = unigram_json(vocab, 3, _tables(file)[:1], is_spaced=switches.is_on("add_prefix_space", True))
    ids = {piece: id for id, (piece, _) in enumerate(vocab)}
    return {**built, "post_processor": xlm_roberta_template(ids, ends)}


def _deberta(file: Json, switches: Switches, special: SpecialPieces, ends: SpecialPieces) -> Json:
    return deberta_json(
        file["model"]["vocab"],
        special,
        PIPELINE,
        switches.id("unk_id", 1),
        lowercase=switches.is_on("do_lower_case", False),
        split=switches.is_on("split_by_punct", False),
        is_spaced=switches.is_on("add_prefix_space", True),
    )


def _tables(file: Json) -> list[Json]:
    """The tables of normalization in a description."""
    normalizer = file.get("normalizer") or {}
    steps = normalizer.get("normalizers") if normalizer.get("type") == "Sequence" else [normalizer]
    return [step for step in steps or () if isinstance(step, dict) and step.get("type") == "Precompiled"]


_OF_BERT = TokenizerClass(SPECIAL_PIECES, "WordPiece", ("", ""), _bert)
_CLASSES: Mapping[str, TokenizerClass] = {
    **dict.fromkeys(
        (
            "BertTokenizer",
            "DistilBertTokenizer",
            "ElectraTokenizer",
            "LayoutLMTokenizer",
            "LxmertTokenizer",
            "MobileBertTokenizer",
            "SqueezeBertTokenizer",
        ),
        _OF_BERT,
    ),
    "MPNetTokenizer": TokenizerClass(_OF_MPNET, "WordPiece", _ENDS, _mpnet),
    **dict.fromkeys(
        ("RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"),
        TokenizerClass(BYTE_LEVEL, "BPE", _ENDS, _roberta),
    ),
    "AlbertTokenizer": TokenizerClass(OF_ALBERT, "Unigram", (OF_ALBERT.cls, OF_ALBERT.sep), _albert),
    "XLMRobertaTokenizer": TokenizerClass(BYTE_LEVEL, "Unigram", _ENDS, _xlm_roberta),
    "DebertaV2Tokenizer": TokenizerClass(SPECIAL_PIECES, "Unigram", (SPECIAL_PIECES.cls, SPECIAL_PIECES.sep), _deberta),
    "OpenAIGPTTokenizer": TokenizerClass(ONLY_UNKNOWN, "BPE", ("", ""), _gpt),
}
_USUAL = {
    "bert": "BertTokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "albert": "AlbertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "openai-gpt": "OpenAIGPTTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}


def class_of(folder: Path) -> TokenizerClass | None:
    """The class that builds the steps of a folder's tokenizer; None if its `tokenizer.json` has them."""
    model, config = read_object(folder / "config.json"), read_object(folder / SWITCHES)
    kind = model.get("model_type")
    if kind == "modernbert":
        return None
    named = config.get("tokenizer_class") or model.get("tokenizer_class") or _USUAL.get(str(kind))
    if named is None:
        return None
    name = str(named).removesuffix("Fast")
    if name in _GENERAL:
        return None
    if name not in _CLASSES:
        raise CheckpointError(
            expected=f"a tokenizer_class in '{folder / SWITCHES}' whose rules are known here",
            found=name,
            fix="tokenize with the tool of the model and train here, or choose another model",
        )
    return _CLASSES[name]


def described(folder: Path, file: Json) -> Json:
    """The description of a folder's tokenizer as `AutoTokenizer` builds it, with its added tokens."""
    chosen, source = class_of(folder), f"'{folder / PIPELINE}'"
    config = read_object(folder / SWITCHES)
    switches = Switches(config, folder / SWITCHES)
    _require_readable(file, switches, folder)
    is_file, kind = (folder / PIPELINE).exists(), kind_of_pieces(file["model"])
    if chosen is not None and chosen.model != kind and not (is_file or config.get("tokenizer_class")):
        chosen = None  # the class that is usual for the architecture reads other files
    tokens = _Named(folder, config, file if is_file else {}, {} if chosen is None else chosen.tokens)
    base = file
    if chosen is not None:
        if kind != chosen.model:
            raise CheckpointError(
                expected=f"{chosen.model} pieces in {source}, as its tokenizer_class in {SWITCHES} has",
                found=str(kind),
                fix="correct the tokenizer_class",
            )
        base = chosen.build(file, switches, tokens.special, tokens.ends) if is_file else file
    vocab, stated = base["model"]["vocab"], base.get("added_tokens") or ()
    ids = dict(vocab.items() if isinstance(vocab, dict) else ((entry[0], id) for id, entry in enumerate(vocab)))
    added, size = dict[int, Json](), len(ids)
    if chosen is None or not is_file:
        _add(added, stated, ids, size, source)
    _add(added, tokens.missing_in(list(added.values())), ids, size, source)
    of_file = {entry["content"]: entry["id"] for entry in stated} if chosen is None else {}
    for content, id in {**of_file, **tokens.ids}.items():
        if content and ids[content] != id:
            raise VocabularyError(
                expected=f"ids of added tokens that continue those of the pieces, each once, in {source}",
                found=f"{content!r} with the id {id} where {ids[content]} comes next",
                fix="save the tokenizer again with transformers",
            )
    return {**base, "added_tokens": [{"id": id, **token} for id, token in sorted(added.items())]}


def _add(added: dict[int, Json], tokens: Iterable[Any], ids: dict[str, int], size: int, source: str) -> None:
    """Adds tokens by their ids, one id after another, as in the package `tokenizers`.

    One that is there becomes as the new one says.

    Args:
        ids: of all pieces, to which those of the new tokens are added.
        size: the number of pieces without added ones.
    """
    for entry in tokens:
        token = _token(entry, source)
        content = token["content"]
        if content and token not in added.values():
            id = ids.setdefault(content, max(size, max(added, default=-1) + 1))
            added[id] = token


def kind_of_pieces(model: Json) -> str:
    """The kind of pieces of the model in a description; old files do not name it."""
    if "type" in model:
        return str(model["type"])
    return "Unigram" if isinstance(model.get("vocab"), list) else "BPE" if "merges" in model else "WordPiece"


def _require_readable(file: Json, switches: Switches, folder: Path) -> None:
    """Refuses settings that change ids and are not followed here, and added tokens of a description without an id."""
    settings = {
        "split_special_tokens in tokenizer_config.json": switches.is_on("split_special_tokens", False),
        "dropout in tokenizer.json, which draws pieces at random": file["model"].get("dropout"),
        "fast_tokenizer_files in tokenizer_config.json": switches.values.get("fast_tokenizer_files")
        not in (None, [PIPELINE]),
    }
    for setting, is_set in settings.items():
        if is_set:
            raise CheckpointError(
                expected=f"a tokenizer in '{folder}' without settings that are not followed here",
                found=setting,
                fix="remove it",
            )
    entries = file.get("added_tokens") or []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or type(entry.get("id")) is not int:
            raise _damaged(f"'{folder / PIPELINE}'", entry)


def special_named(folder: Path, usual: SpecialPieces) -> SpecialPieces:
    """The special pieces that the files of a tokenizer name; the usual ones for what they leave out."""
    config = read_object(folder / SWITCHES)
    return _Named(folder, config, {}, {f"{name}_token": piece for name, piece in usual._asdict().items()}).special


def content_of(token: Any) -> str | None:
    """The piece in an entry of `tokenizer_config.json`: a string, or an object with its content."""
    result = token.get("content") if isinstance(token, dict) else token
    return result if isinstance(result, str) else None


class _Named:
    """The tokens that the files next to a description name.

    Attributes:
        special: the special pieces, with the class's own for what the files leave out.
        ends: the same with the pieces for the ends of a text in place of the pieces for the ends of a row.
        ids: of the added tokens whose ids are stated.
    """

    def __init__(self, folder: Path, config: Json, file: Json, usual: Mapping[str, str]) -> None:
        said, source = dict(config), f"'{folder / SWITCHES}'"
        extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
        listed: dict[int, Json] = {}
        if "added_tokens_decoder" in config:
            listed = {int(id): _token(entry, source) for id, entry in _pairs(config["added_tokens_decoder"], source)}
        else:
            special_map = read_object(folder / SPECIAL_MAP)
            said |= {
                name: {**value, "special": True, "normalized": value.get("normalized", False)}
                if isinstance(value, dict)
                else value
                for name, value in special_map.items()
            }
            extra = [*extra, *special_map.get("extra_special_tokens", ())] if not isinstance(extra, dict) else extra
            special = {content_of(said.get(name)) for name in _NAMES} | set(map(content_of, extra))
            for content, id in read_object(folder / ADDED_TOKENS).items():
                is_special = content in special
                if type(id) is not int:
                    raise _damaged(f"'{folder / ADDED_TOKENS}'", id)
                listed[id] = _token({"content": content, "special": is_special, "normalized": not is_special}, source)
            for entry in file.get("added_tokens") or ():
                listed[int(entry["id"])] = _token(entry, f"'{folder / PIPELINE}'")
            if not extra and not {"extra_special_tokens", "additional_special_tokens"} & set(config):
                extra = special_map.get("additional_special_tokens", ())
        padding = file.get("padding")
        if isinstance(padding, dict) and "pad_token" not in said:
            said["pad_token"] = padding.get("pad_token")
        self._listed = [listed[id] for id in sorted(listed)]
        self.ids = {token["content"]: id for id, token in listed.items()}
        by_content = {entry["content"]: entry for entry in self._listed}
        names = [*_NAMES, *(name for name in said if name.endswith("_token") and name not in _NAMES)]
        self._special = list[Json]()
        contents = dict[str, str]()
        for name in names:
            value = said.get(name, usual.get(name))
            spelled = content_of(value)
            if spelled is None:
                continue
            contents[name] = spelled
            self._special.append(by_content.get(spelled) or _token(value, source, special=True))
        for value in extra.values() if isinstance(extra, dict) else extra:
            self._special.append(_token(value, source, special=True))
        self.special = SpecialPieces(**{field: contents.get(f"{field}_token", "") for field in SpecialPieces._fields})
        self.ends = self.special._replace(cls=contents.get("bos_token", ""), sep=contents.get("eos_token", ""))

    def missing_in(self, added: Sequence[Json]) -> list[Json]:
        """The tokens that are not among the added ones."""
        tokens = [token for token in self._listed if token not in added]
        known = {token["content"] for token in (*added, *tokens)}
        for token in self._special:
            if token["content"] not in known and token not in tokens:
                tokens.append({**token, "special": True})
        names = {token["content"] for token in self._special}
        return [{**token, "special": token["special"] or token["content"] in names} for token in tokens]


def _token(value: Any, source: str, *, special: bool = False) -> Json:
    """A token with all flags."""
    entry = value if isinstance(value, dict) else {"content": value}
    content = entry.get("content")
    is_special = entry.get("special", special)
    flags = {name: entry.get(name, False) for name in _FLAGS}
    flags |= {"special": is_special, "normalized": entry.get("normalized", not is_special)}
    if not isinstance(content, str) or not all(isinstance(flag, bool) for flag in flags.values()):
        raise _damaged(source, value)
    return {"content": content, **flags}


def _pairs(value: Any, source: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict) or not all(str(id).isdecimal() for id in value):
        raise _damaged(source, value)
    return value.items()


def _damaged(source: str, value: Any) -> VocabularyError:
    return VocabularyError(
        expected=f"added tokens by their ids, with true or false for {', '.join(_FLAGS)}, in {source}",
        found=repr(value)[:80],
        fix="restore the file",
    )
