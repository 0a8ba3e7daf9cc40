"""Tiny untrained models that answer about records, to serve."""

from pathlib import Path

from bertsmith.app.library.loading import open_model
from bertsmith.app.library.record_models import RecordModel
from bertsmith.models.encoders.g_bert import GBertConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.codes.model_folder import CodesModel, new_model, write_codes_model
from bertsmith.recipes.codes.run import config_of
from bertsmith.recipes.codes.settings import CodesSettings
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.vocabulary import Code, CodeVocabulary
from codes.sample_events import DISEASES


def write_record_models(folder: Path) -> dict[str, Path]:
    """A model that recommends, and one that predicts the next visit."""
    return {name: write_codes(folder / name, recommends=name == "recommends") for name in ("recommends", "follows")}


def write_codes(path: Path, *, recommends: bool, pretrained: bool = True) -> Path:
    """A model of visits of the diseases and medications of `sample_events`."""
    codes = [Code(name, "diagnosis", 3, f"the {name}") for name in DISEASES]
    vocabulary = CodeVocabulary([*codes, *(Code(name, "medication", 2, "") for name in DISEASES.values())])
    kinds, tree = ("diagnosis", "medication"), CodeTree({})
    labels = [vocabulary.id(("medication", name)) for name in DISEASES.values()]
    labels += [] if recommends else [vocabulary.id(("diagnosis", name)) for name in DISEASES]
    settings = CodesSettings(width=32, layers=1, heads=2)
    config: GBertConfig = config_of(settings, vocabulary, tree, kinds, len(labels))
    model = CodesModel(
        model=new_model(config, vocabulary, tree, kinds, seed=3).eval(),
        vocabulary=vocabulary,
        tree=tree,
        kinds=kinds,
        wanted="medication" if recommends else None,
        labels=tuple(labels),
        threshold=0.5,
        pretrained=pretrained,
        first_visits=False,
    )
    write_codes_model(path, model, ModelMetadata.from_dict({}), "# A test\n")
    return path


def load_record_models(folder: Path) -> dict[str, RecordModel]:
    """Those models, loaded."""
    models = {name: open_model(path, device="cpu") for name, path in write_record_models(folder).items()}
    assert all(isinstance(model, RecordModel) for model in models.values())
    return models  # type: ignore[return-value]
