"""The published BERT, DistilBERT and RoBERTa checkpoints: name, hub id, sizes, casing, languages.

A list, not a downloader: `local_copies` finds the copies on this machine.
"""

import dataclasses
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.models.encoders.distilbert import DistilBertConfig
from bertsmith.models.encoders.roberta import RobertaConfig
from bertsmith.models.model_files.metadata import WEIGHT_FILES
from bertsmith.models.parts.config import BertConfig, EncoderConfig

_UNCASED, _CASED, _MULTILINGUAL_CASED, _MULTILINGUAL_UNCASED, _CHINESE = 30522, 28996, 119547, 105879, 21128


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """A checkpoint that Google, Hugging Face or Facebook published.

    Attributes:
        name: Google's name of the archive; of other models their name on the hub.
    """

    name: str
    hub_id: str
    config: EncoderConfig
    cased: bool
    languages: str

    @property
    def num_parameters(self) -> int:
        """The number of parameters of encoder and pooler."""
        return self.config.num_parameters(pooler=self.config.has_pooler)

    def line(self) -> str:
        """A one-line description.

        >>> find("google-bert/bert-base-cased").line()
        'cased_L-12_H-768_A-12: 12 layers, width 768, 28996 pieces, 108 M parameters, cased, English'
        """
        config = self.config
        return (
            f"{self.name}: {config.num_hidden_layers} layers, width {config.hidden_size}, {config.vocab_size} pieces, "
            f"{self.num_parameters / 1e6:.0f} M parameters, {'cased' if self.cased else 'uncased'}, {self.languages}"
        )


def _published(
    name: str, hub_id: str, size: str, vocab_size: int, *, cased: bool = False, languages: str = "English"
) -> Published:
    config = BertConfig.named(size, vocab_size=vocab_size)
    return Published(name=name, hub_id=hub_id, config=config, cased=cased, languages=languages)


def _small(layers: int, width: int) -> Published:
    """One of the 24 small models of 2020: L in 2 to 12, H in 128 to 768, heads of width 64."""
    heads = width // 64
    config = BertConfig(
        vocab_size=_UNCASED,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    name = f"uncased_L-{layers}_H-{width}_A-{heads}"
    return Published(name=name, hub_id=f"google/bert_{name}", config=config, cased=False, languages="English")


def _other(hub_id: str, config: EncoderConfig, *, cased: bool = True, languages: str = "English") -> Published:
    name = hub_id.rpartition("/")[2]
    return Published(name=name, hub_id=hub_id, config=config, cased=cased, languages=languages)


_GOOGLES = (
    _published("uncased_L-12_H-768_A-12", "google-bert/bert-base-uncased", "base", _UNCASED),
    _published("uncased_L-24_H-1024_A-16", "google-bert/bert-large-uncased", "large", _UNCASED),
    _published("cased_L-12_H-768_A-12", "google-bert/bert-base-cased", "base", _CASED, cased=True),
    _published("cased_L-24_H-1024_A-16", "google-bert/bert-large-cased", "large", _CASED, cased=True),
    _published("wwm_uncased_L-24_H-1024_A-16", "google-bert/bert-large-uncased-whole-word-masking", "large", _UNCASED),
    _published(
        "wwm_cased_L-24_H-1024_A-16", "google-bert/bert-large-cased-whole-word-masking", "large", _CASED, cased=True
    ),
    _published(
        "multi_cased_L-12_H-768_A-12",
        "google-bert/bert-base-multilingual-cased",
        "base",
        _MULTILINGUAL_CASED,
        cased=True,
        languages="104 languages",
    ),
    _published(
        "multilingual_L-12_H-768_A-12",
        "google-bert/bert-base-multilingual-uncased",
        "base",
        _MULTILINGUAL_UNCASED,
        languages="102 languages",
    ),
    # Google lists it as uncased, the hub keeps capitals; they differ only for Latin letters in Chinese text.
    _published(
        "chinese_L-12_H-768_A-12", "google-bert/bert-base-chinese", "base", _CHINESE, cased=True, languages="Chinese"
    ),
    *(
        _small(layers, width)
        for layers in (2, 4, 6, 8, 10, 12)
        for width in (128, 256, 512, 768)
        # Base itself was published again with this series; it is listed above.
        if (layers, width) != (12, 768)
    ),
)
SUCCESSORS = (
    _other("distilbert/distilbert-base-uncased", DistilBertConfig(vocab_size=_UNCASED), cased=False),
    _other("distilbert/distilbert-base-cased", DistilBertConfig(vocab_size=_CASED)),
    _other(
        "distilbert/distilbert-base-multilingual-cased",
        DistilBertConfig(vocab_size=_MULTILINGUAL_CASED),
        languages="104 languages",
    ),
    _other("FacebookAI/roberta-base", RobertaConfig()),
    _other(
        "FacebookAI/roberta-large",
        RobertaConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    ),
    _other("distilbert/distilroberta-base", RobertaConfig(num_hidden_layers=6)),
)
PUBLISHED_MODELS = (*_GOOGLES, *SUCCESSORS)


def find(name: str) -> Published | None:
    """The published checkpoint with a name or hub id; None if there is none.

    >>> find("uncased_L-2_H-128_A-2").num_parameters
    4385920
    """
    return next((model for model in PUBLISHED_MODELS if name in (model.name, model.hub_id)), None)


def local_copies(*folders: Path | str, cache: Path | str | None = None) -> dict[str, Path]:
    """The published checkpoints that are on this machine, by name: in the hub's cache, or as folders."""
    import huggingface_hub  # takes a moment

    for folder in folders:
        if not Path(folder).is_dir():
            problem = "a file" if Path(folder).exists() else "nothing"
            raise InputError(expected=f"a folder at '{folder}'", found=problem, fix="check the path")
    copies = {}
    for model in PUBLISHED_MODELS:
        for folder in folders:
            copy = Path(folder) / model.name
            if any(copy.glob("*.index")) or _has_weights(copy):
                copies[model.name] = copy
        for file in ("config.json",) if model.name not in copies else ():
            cached = huggingface_hub.try_to_load_from_cache(model.hub_id, file, cache_dir=cache)
            if isinstance(cached, str) and _has_weights(Path(cached).parent):
                copies[model.name] = Path(cached).parent
    return copies


def _has_weights(folder: Path) -> bool:
    return any((folder / name).exists() for name in WEIGHT_FILES)
