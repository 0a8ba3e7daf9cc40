"""Tiny untrained models that answer about records, to serve."""

from pathlib import Path

from bertsmith.app.library.loading import Served, open_model
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.g_bert import GBertConfig
from bertsmith.models.encoders.memory_network import MemoryNetwork, MemoryNetworkConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.codes.model_folder import CodesModel, new_model, write_codes_model
from bertsmith.recipes.codes.run import config_of
from bertsmith.recipes.codes.settings import CodesSettings
from bertsmith.recipes.memory.model_folder import rows_of_answers, words_of, write_memory_model
from bertsmith.recipes.memory.stories import Story
from bertsmith.recipes.video.growth import grown
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.vocabulary import Code, CodeVocabulary
from codes.sample_events import DISEASES
from video.sample_videos import write_base_model

CODES = ("0.1", "0.2", "1.0")


def write_record_models(folder: Path) -> dict[str, Path]:
    """A model that recommends, one that predicts the next visit, a memory network, and a model of texts with codes."""
    paths = {name: write_codes(folder / name, recommends=name == "recommends") for name in ("recommends", "follows")}
    return {**paths, "facts": write_memory(folder / "facts"), "clips": write_video(folder / "clips")}


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


def write_memory(path: Path) -> Path:
    """A memory network with two hops that reads three facts, one of whose answers has two words."""
    tokenizer, labels = (
        words_of([Story(("Mary went to the kitchen.",), "Where is Mary?", "garden")], 1),
        ["garden", "the office"],
    )
    rows = rows_of_answers(labels, tokenizer)
    config = MemoryNetworkConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=8, num_hidden_layers=2, max_position_embeddings=3, phrases=1
    )
    metadata = ModelMetadata.from_dict({"task": "memory", "labels": labels})
    write_memory_model(path, MemoryNetwork(config, rows, seed=2), tokenizer, metadata, 1)
    return path


def write_video(path: Path) -> Path:
    """A model of texts with three codes."""
    folder = grown(load_any(write_base_model(path.with_name("base"))), CODES, None, seed=1)
    metadata = ModelMetadata.from_dict({"task": "pretraining", "objective": "text+codes"})
    model = load_pretrained(folder).model
    save_pretrained(path, model, folder.require_tokenizer(), metadata, trained=("mlm", "nsp", "pooler"))
    return path


def load_record_models(folder: Path) -> dict[str, Served]:
    """Those models, loaded."""
    return {name: open_model(path, device="cpu") for name, path in write_record_models(folder).items()}
