"""Models from the hub, fetched only for an id such as `google-bert/bert-base-uncased`.

A path that exists is always treated as a path. Without a network, models are read from the cache. Importing this module
makes no requests; the client is loaded on first use.
"""

import difflib
import re
from pathlib import Path

from bertsmith.base.core.errors import InputError, nearest_path
from bertsmith.base.core.version import __version__
from bertsmith.base.storage.addresses import address_of
from bertsmith.models.checkpoints.packaged import NAMES, is_packaged, packaged_folder, packaged_name
from bertsmith.models.model_files.metadata import CODE, GLINER_CONFIG, WEIGHT_FILES
from bertsmith.models.model_files.row_json import TOKENIZER_FILES

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")

_CACHED = re.compile(r"models--(.+?)--(.+)")  # the folder of a model in the cache of the hub

_MODULE = "[0-9]_*/"  # the folder of a module of sentence-transformers
_OF_ENCODER = ("config.json", *TOKENIZER_FILES, "sentence_bert_config.json")
TEXT_FILES = (
    "bertsmith.json",
    CODE,
    GLINER_CONFIG,
    # How sentence-transformers pools; without these files the vectors would silently differ.
    "modules.json",
    "config_sentence_transformers.json",
    "artifact.metadata",  # of the original ColBERT
    *(f"{folder}{name}" for folder in ("", _MODULE) for name in _OF_ENCODER),
    "[1-9]_*/model.safetensors",  # of a layer after the encoder, a small file in either format
    "[1-9]_*/pytorch_model.bin",
)
# The second is requested only if the first finds nothing.
WEIGHT_PATTERNS = (
    ("model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)


def is_hub_id(source: Path | str) -> bool:
    """True if `source` can only be the id of a model on the hub: owner, slash, name, and no such local path.

    >>> is_hub_id("google-bert/bert-base-uncased"), is_hub_id("/tmp/model"), is_hub_id("model")
    (True, False, False)
    """
    text = str(source)
    # "runs/modle" with an existing folder "runs" is a typo and no reason to contact a server.
    return bool(_ID.fullmatch(text)) and not Path(text).exists() and not Path(text).parent.exists()


def require_source(source: Path | str) -> None:
    """Checks that `source` can be a model: a path, prefix of a Google checkpoint, an address, a name or an id.

    Names are those of models in packages; see `packaged`.
    """
    exists = Path(source).exists() or Path(f"{source}.index").exists()
    if not (exists or address_of(source) or is_packaged(source) or is_hub_id(source)):
        near = difflib.get_close_matches(str(source), NAMES, n=1)
        raise InputError(
            expected=f"a model folder, a checkpoint, {', '.join(NAMES)}, "
            "or a hub id such as google-bert/bert-base-uncased",
            found=f"'{source}', which does not exist",
            fix=f"did you mean '{near[0]}'?" if near else nearest_path(source, folders=True) or "check the path",
        )


def model_name(source: Path | str) -> str:
    """The name of a model: its id, its name in a package, or the last part of its path.

    A model folder of a run has the name of the run. What does not exist keeps its name: an id, an address.

    >>> model_name("google-bert/bert-base-uncased"), model_name("starter")
    ('google-bert/bert-base-uncased', 'starter')
    """
    path = Path(source)
    if not path.exists():
        return str(source)
    if name := packaged_name(path):
        return name
    path = path.resolve()
    if path.parent.name == "snapshots" and (match := _CACHED.fullmatch(path.parent.parent.name)):
        return f"{match[1]}/{match[2]}"
    return path.parent.name if path.name == "model" and path.parent.name else path.name


def shown(path: Path) -> str:
    """The name of a model for messages: its path, but the name of a model in a package, as the user typed."""
    return packaged_name(path) or str(path)


def resolve(
    source: Path | str,
    *,
    cache: Path | str | None = None,
    endpoint: str | None = None,
    offline: bool = False,
    of_encoder: bool = False,
) -> Path:
    """The local folder of a model: `source` itself if it is a path, otherwise the folder of the fetched files.

    Args:
        source: a path, an address such as `s3://bucket/model`, the name of a model in a package, such as "starter", or
            an id.
        cache: folder of fetched models; by default the one that all tools for the hub share. Copies of what is at an
            address are in its folder `copies`, by default in `downloads.CACHE`.
        offline: look in the cache only; from an address, the copy that was used last.
        of_encoder: of a model with an id, only its configuration and the files of its tokenizer are needed.
    """
    if Path(source).exists():
        return Path(source)
    address = address_of(source)
    if address is not None:
        from bertsmith.base.storage.downloads import kept_copy, local_copy

        copies = None if cache is None else Path(cache) / "copies"
        return kept_copy(address, cache=copies) if offline else local_copy(source, cache=copies)
    if is_packaged(source):
        return packaged_folder(source)
    require_source(source)
    from huggingface_hub import constants

    constants.HF_HUB_DISABLE_TELEMETRY = True
    offline = offline or constants.HF_HUB_OFFLINE
    if of_encoder:
        return _fetch(str(source), [*_OF_ENCODER], cache, endpoint, offline)
    folder = Path(source)
    for patterns in WEIGHT_PATTERNS:
        wanted = [*TEXT_FILES, *patterns, *(f"{_MODULE}{name}" for name in patterns)]
        folder = _fetch(str(source), wanted, cache, endpoint, offline)
        is_whole = any((folder / name).is_file() for name in ("config.json", GLINER_CONFIG))
        # A table of static vectors has only a tokenizer next to it.
        modules = [file.parent for name in ("config.json", "tokenizer.json") for file in folder.glob(_MODULE + name)]
        candidates = [folder] if is_whole or ((folder / "tokenizer.json").is_file() and not modules) else modules
        if any((candidate / name).exists() for candidate in candidates for name in WEIGHT_FILES):
            return folder
    absent = [name for name in ("config.json", "model.safetensors") if not (folder / name).exists()]
    raise InputError(
        expected=f"config.json and model.safetensors or pytorch_model.bin of '{source}'",
        found=f"no {' and no '.join(absent)} in {'the cache' if offline else 'the repository'}",
        fix=_how_to_get(str(source)) if offline else "choose a model with PyTorch weights",
    )


def _fetch(
    id: str,
    patterns: list[str],
    cache: Path | str | None,
    endpoint: str | None,
    offline: bool,
) -> Path:
    from huggingface_hub import errors, snapshot_download

    try:
        return Path(
            snapshot_download(
                id,
                allow_patterns=patterns,
                cache_dir=cache,
                endpoint=endpoint,
                local_files_only=offline,
                library_name="bertsmith",
                library_version=__version__,
            )
        )
    except errors.LocalEntryNotFoundError as error:
        # Newer clients report when a copy lacks a file; the caller checks whether that file is needed.
        partial = getattr(error, "snapshot_path", None)
        if partial is not None:
            return Path(partial)
        raise InputError(
            expected=f"a folder '{id}', or that model from the hub or in its cache",
            found="no such folder, no copy in the cache" + ("" if offline else ", and the hub cannot be reached"),
            fix=nearest_path(id, folders=True) or f"check the path, or {_how_to_get(id)}",
        ) from None
    except errors.GatedRepoError:
        raise InputError(
            expected=f"permission to read '{id}'",
            found="a gated model, which its owner shares on request",
            fix="request access on its page, then log in with `hf auth login`",
        ) from None
    except errors.RevisionNotFoundError:
        raise InputError(expected=f"the main branch of '{id}'", found="none", fix="choose another model") from None
    except errors.RepositoryNotFoundError:
        raise InputError(
            expected=f"a model '{id}' on the hub, or a folder of that name",
            found="neither",
            fix=nearest_path(id, folders=True) or "check the spelling, or log in with `hf auth login` if it is private",
        ) from None
    except (errors.HfHubHTTPError, OSError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            expected=f"a response from the hub for '{id}'", found=reason or type(error).__name__, fix="try again later"
        ) from None


def _how_to_get(id: str) -> str:
    return f"run `hf download {id}` on a machine with network access, copy the files here, and use that folder"
