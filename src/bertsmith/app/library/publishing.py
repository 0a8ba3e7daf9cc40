"""The command `push` as a function: the files of a model folder, to a repository of the hub."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.core.version import __version__
from bertsmith.inference.export.request import PushRequest
from bertsmith.models.model_files.metadata import CARD, METADATA, folder_of_model, read_metadata

_OF_A_MODEL = ("config.json", "modules.json", METADATA)  # each model folder has one of them
_OF_A_NEW_REPOSITORY = {".gitattributes"}


@takes(PushRequest)
def push_to_hub(request: PushRequest) -> str:
    """The address of a model on the hub, after the files of its folder were committed there, all at once.

    A repository that does not exist is created, private unless `public`. Other files that are there stay.
    The token is that of `hf auth login` or of HF_TOKEN.

    Raises:
        InputError: the folder is not that of a model, has no valid card, or differs from its digests.
        ConfigError: the name is not that of a repository, or has a model and `replace` is False.
        BertsmithError: there is no token, or the hub refuses or cannot be reached; what was uploaded need not be again.
    """
    folder, name = folder_of_model(request.folder), request.name
    files = _files_of(folder)
    from huggingface_hub import CommitOperationAdd, HfApi, constants, errors, get_token

    constants.HF_HUB_DISABLE_TELEMETRY = True
    with _hub_errors(name):
        if "/" not in name.strip("/"):  # the client takes a name alone for that of a model without an owner
            raise errors.HFValidationError
        require(
            get_token() is not None,
            expected="a token of the hub",
            found="none",
            fix="log in with `hf auth login`, or set HF_TOKEN",
        )
        hub = HfApi(library_name="bertsmith", library_version=__version__)
        try:
            present = set(hub.list_repo_files(name)) - _OF_A_NEW_REPOSITORY
            if request.public:
                warn(f"'{name}' exists, so it stays as visible as it is; its page has a setting for that")
        except errors.RepositoryNotFoundError:
            hub.create_repo(name, private=not request.public)
            present = set()
        if present and not request.replace:
            raise ConfigError(
                expected=f"a new or empty repository '{name}'",
                found=f"{len(present)} files, such as {min(present)}",
                fix="choose another name, or use --replace, which keeps what it does not overwrite",
            )
        additions = [CommitOperationAdd(path, file) for path, file in files.items()]
        with warnings.catch_warnings(record=True) as remarks:  # of the hub, about the card
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            hub.create_commit(name, additions, commit_message=f"Model of bertsmith {__version__}")
        for remark in remarks:
            warn(str(remark.message))
        return f"{hub.endpoint}/{name}"


def _files_of(folder: Path) -> dict[str, Path]:
    """The files of a model folder by their paths in it, without hidden ones, after they were checked."""
    if not any((folder / name).is_file() for name in _OF_A_MODEL):
        fix = "name the folder of a model, or of the run that made it"
        raise InputError.is_not(folder, "a model folder", f"it has no {' and no '.join(_OF_A_MODEL)}", fix)
    if (folder / METADATA).is_file():
        read_metadata(folder, verify=True)
    if not (folder / CARD).is_file():
        raise InputError.missing(folder / CARD, "model card", "write one: it says what the model is for")
    from huggingface_hub import ModelCard

    try:
        ModelCard.load(folder / CARD)
    except Exception as error:  # also of the package for YAML, which the client of the hub brings
        if not (isinstance(error, ValueError) or type(error).__module__.startswith("yaml")):
            raise
        reason = " ".join(str(error).split())
        raise InputError.is_not(folder / CARD, "a model card", reason, "correct the lines between ---") from None
    paths = {file.relative_to(folder): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {path.as_posix(): file for path, file in paths.items() if not any(p.startswith(".") for p in path.parts)}


@contextlib.contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Says in one line what the client of the hub raises."""
    from huggingface_hub import errors

    try:
        yield
    except BertsmithError:
        raise
    except errors.HFValidationError:
        fix = "use letters, digits, '-', '_' and '.', at most 96, such as my-name/my-model"
        raise ConfigError(expected="OWNER/NAME as the repository", found=repr(name), fix=fix) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        fixes = {401: "log in again with `hf auth login`", 403: f"use a token that may write to '{name}'"}
        raise InputError(
            expected=f"the hub to take '{name}'",
            found=f"status {status}: {' '.join((error.server_message or str(error)).split())}",
            fix=fixes.get(status, "try again later" if status >= 500 else "correct that"),
        ) from None
    except Exception as error:  # the hub's client passes on what its connections raise, which have no class in common
        of_connection = isinstance(error, OSError | RuntimeError) or type(error).__module__.startswith("httpx")
        if not (of_connection or isinstance(error, ValueError)):  # the last says what is wrong with the card
            raise
        raise InputError(
            expected=f"the hub to take '{name}'",
            found=" ".join(f"{type(error).__name__}: {error}".split()),
            fix="try again; what has arrived is not sent twice" if of_connection else "correct the card",
        ) from None
