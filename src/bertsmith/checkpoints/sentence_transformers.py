"""How a sentence-transformers folder computes the vector of a text: pooling, length, normalization, prompts.

Such a folder lists its modules in `modules.json`: an encoder, a pooling, often a normalization. Both forms of the
pooling configuration are read, the old (`pooling_mode_mean_tokens: true`) and the new (`pooling_mode: "mean"`); the old
one, which every version of that library reads, is written.

Source: Reimers and Gurevych (2019), "Sentence-BERT", section 3; `Pooling` and `Transformer` of sentence-transformers.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import CheckpointError, nearest
from bertsmith.files import read_json, write_json

MODULES = "modules.json"
_ENCODER_SETTINGS = "sentence_bert_config.json"
ARGUMENTS = "model_args"  # in those settings, what `transformers` receives when it loads the encoder
_PROMPTS = "config_sentence_transformers.json"
_POOLING_FOLDER = "1_Pooling"
QUERY, DOCUMENT = "query", "document"  # names of prompts, as that library looks for them
_FOLDER_POOLINGS = ("mean", "cls", "max")
_OLD_NAMES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceRecipe:
    """How a sentence-transformers folder computes its vectors.

    Attributes:
        encoder: the folder with the weights: the folder itself, or one inside it.
        pooling: mean, cls or max.
        normalize: vectors are scaled to length 1.
        max_length: maximum tokens per row, including [CLS] and [SEP]; None if not specified.
        lowercase: texts are lower-cased, whatever the encoder's tokenizer says.
        prompt: a prefix for every text.
        prompts: all prompts by their names, such as `query` and `document`.
        pools_prompt: whether the tokens of the prompt are part of the pooling.
    """

    encoder: Path
    pooling: str = "mean"
    normalize: bool = False
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pools_prompt: bool = True


def read_recipe(folder: Path, *, pooled: bool = True) -> SentenceRecipe | None:
    """The recipe of a folder, or None if it is not a sentence-transformers folder.

    Args:
        pooled: False: read only the encoder and how it reads texts, whatever the folder does with its vectors.

    Raises:
        InputError: a file is not JSON.
        CheckpointError: the folder needs something unsupported, such as a dense layer.
    """
    if not (folder / MODULES).is_file():
        return None
    encoder, pooling, normalize, includes_prompt = folder, "", False, True
    for module in _modules(folder):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        place = _inside(folder, str(module.get("path", "")))
        if kind == "Transformer":
            encoder = place
        elif kind == "StaticEmbedding":
            encoder, pooling = place, "mean"
        elif not pooled:
            continue
        elif kind == "Pooling":
            pooling, includes_prompt = _pooling(place / "config.json")
        elif kind == "Normalize":
            normalize = True
        else:
            raise CheckpointError(
                expected=f"an encoder, a pooling and a normalization in '{folder / MODULES}'",
                found=f"a module {kind or '?'}, which is not supported",
                fix="name a model without it, or only the folder of its encoder",
            )
    said = _object(encoder / _ENCODER_SETTINGS)
    if not pooled:
        return SentenceRecipe(
            encoder=encoder, max_length=_max_length(encoder, said), lowercase=_lowercases(encoder, said)
        )
    if not pooling:
        raise CheckpointError(
            expected=f"a pooling in '{folder / MODULES}'", found="none", fix="name only the folder of the encoder"
        )
    prompt, prompts = _prompts(folder / _PROMPTS)
    if prompt and not includes_prompt:
        raise CheckpointError(
            expected=f"a prompt that is included in the pooling of '{folder}'",
            found=f"{prompt!r}, which is left out",
            fix="choose another model, or only the folder of its encoder",
        )
    return SentenceRecipe(
        encoder=encoder,
        pooling=pooling,
        normalize=normalize,
        max_length=_max_length(encoder, said),
        lowercase=_lowercases(encoder, said),
        prompt=prompt,
        prompts=prompts,
        pools_prompt=includes_prompt,
    )


def _modules(folder: Path) -> list[dict[str, Any]]:
    modules = read_json(folder / MODULES)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules) or not modules:
        raise CheckpointError(
            expected=f"a list of modules in '{folder / MODULES}'", found="something else", fix="download it again"
        )
    return modules


def _inside(folder: Path, path: str) -> Path:
    """The folder of a module, which must be inside the model's folder."""
    place = folder / path
    if not place.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(
            expected=f"modules inside '{folder}'", found=f"one at {path!r}", fix="download the model again"
        )
    return place


def _pooling(path: Path) -> tuple[str, bool]:
    """The pooling of a `1_Pooling/config.json`, in the old or new form, and whether the prompt is pooled too."""
    said = read_json(path)
    if not isinstance(said, dict):
        raise CheckpointError(expected=f"settings in '{path}'", found="something else", fix="download it again")
    named = said.get("pooling_mode", [name for key, name in _OLD_NAMES.items() if said.get(key)] or "mean")
    names = named if isinstance(named, list) else [named]
    if len(names) != 1 or names[0] not in _FOLDER_POOLINGS:
        raise CheckpointError(
            expected=f"one of the poolings {', '.join(_FOLDER_POOLINGS)} in '{path}'",
            found=" and ".join(map(str, names)) or "none",
            fix="name only the folder of the encoder, with a --pooling, or another model",
        )
    return str(names[0]), _flag(path, said, "include_prompt", default=True)


def _flag(path: Path, said: dict[str, Any], name: str, *, default: bool) -> bool:
    """A setting that is true or false; null counts as absent."""
    value = said.get(name)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(expected=f"true or false as {name} in '{path}'", found=repr(value), fix="correct it")
    return default if value is None else value


def _lowercases(encoder: Path, said: dict[str, Any]) -> bool:
    return _flag(encoder / _ENCODER_SETTINGS, said, "do_lower_case", default=False)


def _object(path: Path) -> dict[str, Any]:
    """The settings in a file; empty if there is no such file.

    Raises:
        CheckpointError: the file has something else.
    """
    said = read_json(path) if path.is_file() else {}
    if not isinstance(said, dict):
        raise CheckpointError(
            expected=f"settings by their names in '{path}'",
            found=repr(said)[:60],
            fix="write an object such as {}, or download the file again",
        )
    return said


def _max_length(encoder: Path, said: dict[str, Any]) -> int | None:
    """The `max_seq_length`; if not specified, the tokenizer's limit."""
    found = said.get("max_seq_length") or _object(encoder / "tokenizer_config.json").get("model_max_length")
    return int(found) if isinstance(found, int | float) and found > 0 else None


def _prompts(path: Path) -> tuple[str, dict[str, str]]:
    """The default prompt, a prefix for every text, and all prompts by name.

    Raises:
        CheckpointError: a prompt is not a text, or the default one is not among them.
    """
    said = _object(path)
    name, prompts = said.get("default_prompt_name"), said.get("prompts")
    prompts = {} if prompts is None else prompts
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        wrong = (
            next((text for text in prompts.values() if not isinstance(text, str)), "")
            if isinstance(prompts, dict)
            else prompts
        )
        raise CheckpointError(
            expected=f"texts by their names as prompts in '{path}'",
            found=repr(wrong)[:60],
            fix='write {"query": "a text", "document": "a text"}',
        )
    if name is not None and not (isinstance(name, str) and name in prompts):
        raise CheckpointError(
            expected=f"the name of a prompt as default_prompt_name in '{path}'",
            found=repr(name)[:60],
            fix=nearest(str(name), prompts) if prompts else "write null, or add the prompt",
        )
    return prompts.get(name, "") if name is not None else "", dict(prompts)


def write_recipe(
    folder: Path,
    *,
    width: int,
    pooling: str,
    max_length: int,
    prompts: Mapping[str, str],
    lacks_pooler: bool = False,
    is_static: bool = False,
) -> None:
    """Writes the files that make a model folder one of sentence-transformers.

    Args:
        folder: the folder of the encoder.
        width: of the vectors.
        pooling: mean, cls or max.
        max_length: maximum tokens per row, including [CLS] and [SEP].
        prompts: by their names; empty ones are left out.
        lacks_pooler: the encoder of `transformers` would have a pooler, but the folder has none.
        is_static: the encoder has one vector per piece. Its means are scaled to length 1, because that library does not
            count special pieces.
    """
    assert pooling in _FOLDER_POOLINGS, pooling
    kinds = [("", "Transformer"), (_POOLING_FOLDER, "Pooling")]
    if is_static:
        kinds = [("", "StaticEmbedding"), ("1_Normalize", "Normalize")]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds)
    ]
    write_json(folder / MODULES, modules)
    if not is_static:
        without = {ARGUMENTS: {"add_pooling_layer": False}} if lacks_pooler else {}
        write_json(folder / _ENCODER_SETTINGS, {"max_seq_length": max_length, "do_lower_case": False, **without})
    given = {name: text for name, text in prompts.items() if text}
    about = {"prompts": given, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_json(folder / _PROMPTS, about)
    if is_static:
        return
    (folder / _POOLING_FOLDER).mkdir(exist_ok=True)
    modes = {name: mode == pooling for name, mode in _OLD_NAMES.items()}
    write_json(
        folder / _POOLING_FOLDER / "config.json", {"word_embedding_dimension": width, **modes, "include_prompt": True}
    )
