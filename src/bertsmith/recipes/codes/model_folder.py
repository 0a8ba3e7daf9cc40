"""Reads and writes the folder of a model of visits: weights, vocabulary of codes, tree, and what it predicts."""

import dataclasses
from pathlib import Path
from typing import Any

from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import misfit
from bertsmith.models.checkpoints.own_folder import new_from_weights, own_folder_of, write_own_folder
from bertsmith.models.encoders.g_bert import GBert, GBertConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.weakness import weakness_of
from bertsmith.text.codes import tree as trees
from bertsmith.text.codes import vocabulary as vocabularies
from bertsmith.text.codes.graph import graphs_of
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.vocabulary import SPECIAL_CODES, Code, CodeVocabulary

TASK = "codes"
_SPEC = {
    "kinds": [str],
    "wanted?": str,
    "labels": [int],
    "threshold": float,
    "pretrained": bool,
    "first_visits": bool,
    "digests": {"*": str},
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CodesModel:
    """A model of visits with what it needs to read and to answer.

    Attributes:
        kinds: of codes that it reads; those of the current visit first, if it recommends.
        wanted: the kind that it recommends; None if it predicts the codes of the next visit.
        labels: the ids of the codes that it predicts.
        threshold: the probability from which a code is predicted.
        pretrained: whether it learned to predict masked codes.
        first_visits: whether it learned from visits without a past too.
        weakness: what the scores of its own test visits say against its answers, in a sentence; "" if nothing.
    """

    model: GBert
    vocabulary: CodeVocabulary
    tree: CodeTree
    kinds: tuple[str, ...]
    wanted: str | None
    labels: tuple[int, ...]
    threshold: float
    pretrained: bool
    first_visits: bool
    weakness: str = ""

    @property
    def recommends(self) -> bool:
        """Whether it recommends codes of the current visit; otherwise it predicts those of the next one."""
        return self.wanted is not None

    def label(self, number: int) -> Code:
        """The code that a label stands for."""
        return self.vocabulary.code(self.labels[number])


def new_model(config: GBertConfig, vocabulary: CodeVocabulary, tree: CodeTree, kinds: Any, seed: int | None) -> GBert:
    """A model of this shape."""
    sizes = [len(vocabulary.ids_of_kind(kind)) for kind in kinds]
    return GBert(config, sizes, graphs_of(tree, vocabulary, kinds) if config.graphs else (), seed=seed)


def write_codes_model(path: Path, codes: CodesModel, metadata: ModelMetadata, card: str) -> None:
    """Writes a model with its vocabulary, tree, metadata and card, in place of one that is there."""

    def write_codes(folder: Path) -> None:
        codes.vocabulary.save(folder / vocabularies.FILE)
        if len(codes.tree):
            codes.tree.save(folder / trees.FILE)

    spec = {
        "kinds": list(codes.kinds),
        **({} if codes.wanted is None else {"wanted": codes.wanted}),
        "labels": list(codes.labels),
        "threshold": codes.threshold,
        "pretrained": codes.pretrained,
        "first_visits": codes.first_visits,
        "digests": _digests(codes.vocabulary, codes.tree),
    }
    metadata = dataclasses.replace(metadata, task=TASK, spec=spec)
    config, tensors = codes.model.config, codes.model.state_dict()
    write_own_folder(path, config, tensors, None, metadata, card, replace=True, also=write_codes)


def read_codes_model(path: Path | str) -> CodesModel:
    """The model of visits in a folder, or of the run that has it.

    Raises:
        BertsmithError: there is no such model, or it is damaged.
    """
    folder, config, metadata = own_folder_of(
        path, "a model of visits", {GBertConfig.model_type: GBertConfig}, "codes train"
    )
    vocabulary = CodeVocabulary.load(folder / vocabularies.FILE)
    tree = CodeTree.load(folder / trees.FILE) if (folder / trees.FILE).exists() else CodeTree({})
    spec = metadata.spec or {}
    problem = misfit(dict(spec), _SPEC)
    if not problem:
        fits = spec["digests"] == _digests(vocabulary, tree)
        fits = fits and len(spec["labels"]) == config.num_labels and len(vocabulary) == config.vocab_size
        fits = fits and all(len(SPECIAL_CODES) <= id < len(vocabulary) for id in spec["labels"])
        fits = fits and len(spec["kinds"]) == config.type_vocab_size and set(spec["kinds"]) <= set(vocabulary.kinds)
        problem = "" if fits else "codes of another model"
    require(not problem, expected=f"the codes of the model in '{folder}'", found=problem, fix="copy the folder again")
    kinds = tuple(spec["kinds"])
    model = new_from_weights(folder, "model of visits", lambda: new_model(config, vocabulary, tree, kinds, seed=None))
    return CodesModel(
        model=model,
        vocabulary=vocabulary,
        tree=tree,
        kinds=kinds,
        wanted=spec.get("wanted"),
        labels=tuple(spec["labels"]),
        threshold=spec["threshold"],
        pretrained=spec["pretrained"],
        first_visits=spec["first_visits"],
        weakness=weakness_of(metadata),
    )


def _digests(vocabulary: CodeVocabulary, tree: CodeTree) -> dict[str, str]:
    """The digests of the files with the vocabulary and the tree."""
    return {vocabularies.FILE: vocabulary.digest, **({trees.FILE: tree.digest} if len(tree) else {})}
