"""`bertsmith.json`, the metadata of a model: its task, its text rules, the digests of its files.

It is stored next to the files that other tools read, which ignore it. Our readers take the text rules and the labels
from it first, before any other file.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import CheckpointError, InputError, VocabularyError
from bertsmith.base.core.settings import require_labels
from bertsmith.base.core.version import __version__
from bertsmith.base.storage.files import FORMAT, digest_file, read_json, read_object, require_format, write_json
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.models.parts.head_inputs import VECTORS_OF_ROW
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

METADATA = "bertsmith.json"
SAFETENSORS, BIN = "model.safetensors", "pytorch_model.bin"
# In search order; an index lists the files of a model that is split into shards.
WEIGHT_FILES = (SAFETENSORS, f"{SAFETENSORS}.index.json", BIN, f"{BIN}.index.json")
GLINER_CONFIG = "gliner_config.json"  # in place of config.json, of a model of GLiNER
NGRAM_WEIGHTS, NGRAM_TERMS = "n-grams.safetensors", "n-grams.json"  # in place of all others, of a model on words
BEST_EVALUATION = "the best evaluation"  # under "kept" of a training whose dev examples chose its step
NGRAM_ENCODER = "encoder"  # next to them, the folder of the encoder whose vectors a linear model compares
CARD = "README.md"  # the model card, which people may edit
CODE = "modeling_bertsmith.py"  # what `transformers` needs for a head that it has no class for; never run here
KEPT_NOTE = "int8"  # what `bertsmith quantize` measured
WHOLE_ROWS = ("classification", "regression", RERANKING, "choice")  # kinds of task whose head reads a vector per row
VECTORS = (
    "vectors"  # the method of distillation whose students give vectors, see `recipes.distillation.vector_teaching`
)
SIMILARITY = "similarity"  # the kind of task whose models give vectors, and have the files of sentence-transformers
OF_VECTORS = (SIMILARITY, "selection")  # the kinds of task whose head is the vector of a text
# Written on every save: values that a caller passes on from an older file are replaced.
RESERVED = ("format", "bertsmith", "text_rules", "vocabulary", "digests")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """The facts about a model besides its weights and its shape.

    Attributes:
        task: "pretraining" or a kind of task; None for a model of another tool.
        spec: the task, from `TaskSpec.to_dict`.
        steps: optimizer steps of pre-training; in a fine-tuned model, of its base model.
        tokens: tokens of pre-training, likewise.
        continued_from: of a model whose pre-training continued from another one: the "task" of that one, and the
            "tokens" that it had read before, None if that is unknown. `steps` and `tokens` do not count them.
        licence: of the model, as its author gave it, such as "apache-2.0".
        sources: the texts that it was trained on, one sentence each, as Markdown.
        scores: on held-out documents or dev examples.
        baseline: of a fine-tuned model, the best baseline on the same dev examples: its "name", "metric" and "score",
            the number of "examples", and the "p_value" of the difference; see `weakness.weakness_of`.
        text_rules: the settings besides the vocabulary that determine the ids of a text.
        scoring: how another tool's classifier reads texts and what it computes from its outputs, see
            `checkpoints.cross_encoders`.
    """

    task: str | None = None
    objective: str | None = None
    labels: tuple[str, ...] = ()
    spec: Mapping[str, Any] | None = None
    own_head: str | None = None
    trained_on: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = None
    tokens: int | None = None
    continued_from: Mapping[str, Any] | None = None
    licence: str | None = None
    sources: tuple[str, ...] = ()
    scores: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    baseline: Mapping[str, Any] | None = None
    text_rules: Mapping[str, Any] | None = None
    architecture: str | None = None
    problem_type: str | None = None
    scoring: Mapping[str, Any] | None = None
    other: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @staticmethod
    def from_dict(values: Mapping[str, Any], where: str = "the metadata") -> "ModelMetadata":
        """The metadata in a parsed file."""
        labels, task = values.get("labels") or [], values.get("task") or ""
        wrong = not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels)
        if wrong or not isinstance(task, str):
            raise InputError(
                expected=f"a string as task and a list of strings as labels in {where}",
                found=f"{task!r} and {labels!r}"[:120],
                fix="restore the file",
            )
        require_labels(labels, f"the labels in {where}")
        for name in ("spec", "trained_on", "training", "continued_from", "scores", "baseline", "text_rules", "scoring"):
            if not isinstance(values.get(name) or {}, Mapping):
                raise InputError(
                    expected=f"an object as {name} in {where}", found=repr(values[name])[:80], fix="restore the file"
                )
        sources = values.get("sources") or []
        if not isinstance(sources, list | tuple) or not all(isinstance(line, str) for line in sources):
            raise InputError(
                expected=f"a list of strings as sources in {where}", found=repr(sources)[:80], fix="restore the file"
            )
        known = {field.name for field in dataclasses.fields(ModelMetadata)} - {"other"}
        taken = {name: value for name, value in values.items() if name in known and value is not None}
        other = {name: value for name, value in values.items() if name not in known}
        return ModelMetadata(
            **{**taken, "labels": tuple(labels), "task": task or None, "sources": tuple(sources)}, other=other
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `bertsmith.json`; unknown ones are left out."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        other = values.pop("other")
        # A fine-tuned model lists its labels and scores even if there are none.
        always = ("labels", "scores") if self.spec is not None else ()
        known = {name: value for name, value in values.items() if name in always or value not in (None, (), {})}
        if "labels" in known:
            known["labels"] = list(self.labels)
        if "sources" in known:
            known["sources"] = list(self.sources)
        return {**known, **other}

    @property
    def all_tokens(self) -> int | None:
        """The tokens of all pre-training, those before a continuation included; None if unknown."""
        before = 0 if self.continued_from is None else self.continued_from.get("tokens")
        return before + self.tokens if isinstance(before, int) and isinstance(self.tokens, int) else None

    def as_initial_model(self) -> Mapping[str, Any]:
        """`continued_from` of a model whose pre-training continues from this one."""
        if self.continued_from is not None and self.all_tokens is None:
            tokens = self.continued_from.get("tokens")
            return {"task": self.continued_from.get("task"), "tokens": tokens if isinstance(tokens, int) else None}
        return {"task": self.task, "tokens": self.all_tokens}

    @property
    def reads(self) -> str:
        """The input of the head of a task on whole texts, one of `head_inputs.READS`."""
        return str((self.spec or {}).get("reads", "pooler"))

    @property
    def has_learned_vectors(self) -> bool:
        """Whether a teacher has taught it the vectors of texts."""
        return self.training.get("method") == VECTORS

    @property
    def keeps_heads(self) -> bool:
        """Whether a folder of sentence-transformers is a model of ours that learned its vectors in pre-training."""
        return self.gives_vectors and self.task == "pretraining"

    @property
    def gives_vectors(self) -> bool:
        """Whether it was trained to give vectors of texts; its folder then has the files of sentence-transformers."""
        return self.task == SIMILARITY or self.has_learned_vectors

    @property
    def vectors_of_row(self) -> int:
        """The number of concatenated vectors of the encoder's width that a head on whole texts reads of a row."""
        return VECTORS_OF_ROW.get(self.reads, 1) if self.task in WHOLE_ROWS else 1

    def kept_layers(self, folder: Path) -> tuple[str, ...]:
        """The linear layers that int8 keeps in higher precision; none if the metadata does not list any."""
        note = self.other.get(KEPT_NOTE, {})
        kept = note.get("kept", []) if isinstance(note, dict) else None
        if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
            raise CheckpointError(
                expected=f"names of linear layers under '{KEPT_NOTE}' in '{folder / METADATA}'",
                found=repr(note)[:80],
                fix="restore the file, or run `bertsmith quantize` again",
            )
        return tuple(kept)

    def check_vocabulary(self, vocabulary: Vocabulary, folder: Path) -> None:
        """Checks that the vocabulary is the recorded one, if its digest is recorded, and that its file is too.

        The file is checked as well because `tokenizer.json` holds the pieces once more and completes a list that was
        cut short.
        """
        recorded, digests = self.other.get("vocabulary"), self.other.get("digests")
        if not isinstance(recorded, str):
            return
        file, wanted = folder / "vocab.txt", digests.get("vocab.txt") if isinstance(digests, dict) else None
        is_altered = wanted is not None and file.is_file() and digest_file(file) != wanted
        if is_altered or recorded != vocabulary.digest:
            raise VocabularyError(
                expected=f"the vocabulary that '{folder / METADATA}' describes",
                found="different pieces, or the same in another order",
                fix="copy the folder again, or remove 'vocabulary' from that file if you changed them",
            )

    def check_labels(self, tensors: "Mapping[str, Tensor]") -> None:
        """Checks that there is one label for each row of the classifier, if there are labels and a classifier.

        That of entities that may be inside one another has several rows for a label; of labels that a caller may name,
        it has none.
        """
        bias = None if self.task in ("entities", "entities-by-name") else tensors.get("classifier.bias")
        if self.labels and bias is not None and len(self.labels) != len(bias):
            raise CheckpointError(
                expected=f"{len(bias)} labels, one for each row of the classifier",
                found=f"{len(self.labels)}: {', '.join(self.labels)}",
                fix="name every class once",
            )


def read_metadata(folder: Path, *, verify: bool = False) -> ModelMetadata:
    """The metadata of a model folder; empty if there is none."""
    path = folder / METADATA
    info = read_object(path)
    require_format(info, path)
    metadata = ModelMetadata.from_dict(info, f"'{path}'")
    if verify:
        state = digest_state(folder, info.get("digests"))
        if not state.recorded:
            raise CheckpointError(
                expected=f"digests in '{path}'", found="none", fix="read the folder without verification"
            )
        if state.altered:
            raise altered_files(folder, state.altered)
    return metadata


@dataclasses.dataclass(frozen=True)
class DigestState:
    """How the files of a model folder compare with the digests in its metadata.

    Attributes:
        recorded: files with a recorded digest.
        altered: files that differ or are missing, and files of weights without a digest.
    """

    recorded: int
    altered: tuple[str, ...]


def altered_files(folder: Path, names: Sequence[str]) -> CheckpointError:
    """The error for files that differ from the digests in the metadata of their folder."""
    return CheckpointError(
        expected=f"the files that '{folder / METADATA}' describes",
        found=f"different or missing ones: {', '.join(names)}",
        fix=f"copy the folder again, or remove {METADATA} if you changed them",
    )


def digest_state(folder: Path, digests: Any) -> DigestState:
    """The comparison of the files in a folder with recorded digests; every file is read."""
    if not isinstance(digests, dict) or not digests:
        return DigestState(0, ())
    files = files_of(folder)
    altered = [name for name, digest in digests.items() if name not in files or digest_file(files[name]) != digest]
    altered += [name for name, file in files.items() if holds_weights(file) and name not in digests]
    return DigestState(len(digests), tuple(altered))


def require_metadata(folder: Path) -> None:
    """Checks that the folder of a fine-tuned model has metadata to write into."""
    if not (folder / METADATA).is_file():
        raise CheckpointError(
            expected=f"a model folder of bertsmith in '{folder}'",
            found=f"no {METADATA}",
            fix="write one with `bertsmith convert --to huggingface`",
        )


def update_metadata(folder: Path, values: Mapping[str, Any]) -> None:
    """Writes values into the metadata of a model folder, next to what is there."""
    path = folder / METADATA
    write_json(path, (read_json(path) if path.is_file() else {"format": FORMAT}) | dict(values))


def digests_of_model(model: str | Path) -> dict[str, str]:
    """The digest of each file of a model folder, or of the one in a run folder; none for a model that is neither."""
    files = files_of(folder_of_model(model))
    return {name: digest_file(file) for name, file in files.items() if not name.startswith(".")}


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a model folder by their names, those of its modules as `1_Pooling/config.json`."""
    files = (*folder.glob("*"), *folder.glob("[1-9]_*/*"))
    return {file.relative_to(folder).as_posix(): file for file in sorted(files) if file.is_file()}


def folder_of_model(model: str | Path) -> Path:
    """The path of a model folder, or of the one in a run folder; any other as it is."""
    folder = Path(model)
    return folder / "model" if (folder / "model").is_dir() else folder


def write_metadata(
    folder: Path, tokenizer: Tokenizer | None, metadata: ModelMetadata, known: Mapping[str, str] | None = None
) -> None:
    """Writes the metadata of a model, with the digests of the files that are already in `folder`.

    Args:
        known: digests of some of these files, which are then not read.
    """
    values: dict[str, Any] = {"format": FORMAT, "bertsmith": __version__}
    values |= {key: value for key, value in metadata.to_dict().items() if key not in RESERVED}
    if tokenizer is not None:
        values |= {"text_rules": tokenizer.settings, "vocabulary": tokenizer.vocabulary.digest}
    # People may add to the model card.
    files = {name: file for name, file in files_of(folder).items() if name not in (METADATA, CARD)}
    known = known or {}
    values["digests"] = {name: known.get(name) or digest_file(file) for name, file in files.items()}
    write_json(folder / METADATA, values)


def holds_weights(file: Path) -> bool:
    """Whether a file of a model folder is one of weights, by its name."""
    return file.suffix in (".safetensors", ".bin", ".index", ".onnx") or ".data-" in file.name


def n_gram_folder(source: object) -> Path | None:
    """The folder of a model on words, without an encoder, or the one in a run; None for any other source."""
    if not isinstance(source, str | Path):
        return None
    folders = (Path(source), Path(source) / "model")
    return next((folder for folder in folders if (folder / NGRAM_TERMS).is_file()), None)
