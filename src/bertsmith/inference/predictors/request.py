"""The parameters of the commands that predict with a model: `predict`, `evaluate`, `fill`, `complete` and others."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bertsmith.base.core.parameters import (
    ALSO,
    COLUMN,
    ENGINE,
    FORMAT,
    HEAD,
    LABELLED,
    MAP_LABELS,
    MODEL,
    TEXT_FILE,
    TUNED_MODEL,
    ComputeSettings,
    optional,
)
from bertsmith.base.core.requests import AS_IT_IS, Request, file_field, path_field
from bertsmith.base.core.settings import Help, help_field, require, require_limits, require_number, require_other
from bertsmith.base.core.tables import File, Table
from bertsmith.base.processes.engines import LOCAL
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs.settings import AnswerSettings, ColumnSettings
from bertsmith.text.documents.encodings import EncodingSettings

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead

RETRIEVAL = "retrieval"  # the task whose examples are queries
INT8_LOSS = 0.004  # fraction of the score that int8 may lose

_ALSO = dataclasses.replace(
    ALSO,
    help=f"{ALSO.help}; with --task retrieval: a model of another kind of vectors",
    library=f"{ALSO.library}; for the task retrieval: models of other kinds of vectors",
)
_SEARCHED = dataclasses.replace(
    TUNED_MODEL, help=f"{TUNED_MODEL.help}; with --task retrieval: an index, or a model of vectors"
)
_JUDGED = dataclasses.replace(
    LABELLED,
    help=f"{LABELLED.help}; with --task retrieval: queries, or a folder of queries.jsonl, qrels and corpus.jsonl",
)


@dataclasses.dataclass(frozen=True)
class EvaluateRequest(Request, ColumnSettings, ComputeSettings):
    """A fine-tuned model and labelled examples; or what is searched, and queries with judgements."""

    model: Annotated[str | Path, _SEARCHED]
    data: Annotated[File, _JUDGED]
    _: dataclasses.KW_ONLY
    task: str | None = optional(None, FORMAT)
    head: "type[OwnHead] | None" = optional(None, HEAD)
    map_labels: LabelMap | None = optional(None, MAP_LABELS)
    also: Sequence[str | Path] = optional((), _ALSO)
    judgements: str | Path | None = path_field(
        "with --task retrieval: the `query 0 passage gain` lines for queries in FILE [qrels/test.tsv of the folder]"
    )
    rerank: str | Path | None = path_field(
        "with --task retrieval: also score every search with its best passages re-ranked by this model",
        "DIR",
        path="the model",
        kind=str,
    )
    depth: int = help_field(100, "with --task retrieval: passages to fuse or re-rank", least=1)
    fuse: str = help_field(
        "rrf", "with --task retrieval: how rankings are fused, see `search`", choices=("rrf", "scores")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("judgements", "rerank", "depth", "fuse"):
            is_used = name not in self.given or self.task == RETRIEVAL
            require_other(is_used, f"--{name}", f"--task {RETRIEVAL}")


@dataclasses.dataclass(frozen=True)
class QuantizeRequest(Request, ColumnSettings):
    """A model, and examples to measure int8 on."""

    model: Annotated[str | Path, TUNED_MODEL]
    data: Annotated[
        File,
        dataclasses.replace(
            LABELLED, help="examples that the model was not trained on: with labels, or for vectors also texts"
        ),
    ]
    _: dataclasses.KW_ONLY
    task: str | None = optional(None, FORMAT)
    limit: float = help_field(INT8_LOSS, "fraction of the fp32 score that int8 may lose", least=0, most=1)
    head: "type[OwnHead] | None" = optional(None, HEAD)
    map_labels: LabelMap | None = optional(None, MAP_LABELS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntitySettings:
    """Which entities a model marks, in place of what was stored with it; None keeps that."""

    labels: "str | Path | Sequence[str] | Mapping[str, str] | Table | None" = help_field(
        None,
        "entities-by-name: names of the labels to look for, separated by commas; a text file with one name per line; "
        "or a table with a column name and perhaps description [those of the training]",
        library="entities-by-name: names of the labels to look for, descriptions by name, or a file of them",
        metavar="NAME,...|FILE",
        kind=str,
    )
    threshold: float | None = help_field(
        None,
        "nested-ner and entities-by-name: probability from which a span is an entity [the model's]",
        least=0,
        most=1,
    )
    overlap: str | None = help_field(
        None,
        "nested-ner and entities-by-name: which entities may share words: any, nested (of two, one is inside the "
        "other) or none [the model's]",
        metavar="NAME",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionSettings:
    """When a model of one label does not answer, or answers with several, by labelled texts.

    Without `calibrate`, the threshold is one that was saved with the model, or fitted to saved scores.
    """

    calibrate: File | None = file_field(
        "labelled texts that the model was not trained on, a table, for --accuracy or --coverage [what was saved with "
        "the model]",
        table=True,
    )
    accuracy: float | None = help_field(
        None,
        "give no answer to the least certain texts, so that this share of the answers, such as 0.95, is right",
        above=0,
        below=1,
    )
    coverage: float | None = help_field(
        None,
        "answer with sets of labels, so that this share of the sets, such as 0.9, contains the right label",
        above=0,
        below=1,
    )
    save_threshold: bool = help_field(
        False,
        "with --calibrate: save the threshold in the model folder, with the scores of the labelled texts, which give "
        "one for any other share; for later predictions and for `serve`",
    )

    def __post_init__(self) -> None:
        require_limits(self)
        require_other(self.calibrate is None or bool(self.promise), "--calibrate", "--accuracy or --coverage")
        require_other(not self.save_threshold or self.calibrate is not None, "--save-threshold", "--calibrate")
        _require_alone(len(self.promise) < 2, "--accuracy or --coverage", "both")

    @property
    def promise(self) -> dict[str, float]:
        """The share of the answers, or of the sets, by the name of its option; empty if none is asked for."""
        values = {"accuracy": self.accuracy, "coverage": self.coverage}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class PredictRequest(
    Request, AnswerSettings, EntitySettings, SelectionSettings, ColumnSettings, EncodingSettings, ComputeSettings
):
    """A fine-tuned model, where its texts come from, and where the predictions go."""

    model: Annotated[str | Path, TUNED_MODEL]
    _: dataclasses.KW_ONLY
    engine: str = optional(LOCAL, ENGINE)
    data: str | Path | None = file_field(
        "instead of stdin: a table (.csv, .tsv, .jsonl, .parquet), or another file of the model's task; labels are not "
        "needed"
    )
    replies: str | Path | None = file_field(
        "response-selection: candidates for every context: a file with a reply on each line, or a table with a column "
        "response"
    )
    top: int = help_field(5, "with --replies: replies to show for each context", least=1, most=10_000)
    test: str | Path | None = file_field("instead of stdin: a GLUE test file, without labels")
    task: str | None = help_field(None, "with --test: mnli-mm or ax for an MNLI model", metavar="NAME")
    submission: str | Path | None = help_field(
        None, "with --test: write the file for GLUE's evaluation server there", metavar="DIR", path=True, kind=Path
    )
    out: str | Path | None = help_field(
        None,
        "write to this file instead of printing: the objects of --json (.jsonl), or with --data the table with columns "
        "prediction and probability (.csv)",
        metavar="FILE",
        path=True,
        kind=Path,
        address=AS_IT_IS,
    )
    resume: bool = help_field(False, "with a .jsonl file: resume an unfinished one; give the same lines again")
    replace: bool = help_field(False, "overwrite the file of --out or --submission")
    head: "type[OwnHead] | None" = optional(None, HEAD)
    also: Sequence[str | Path] = optional((), ALSO)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in {**self.values(ColumnSettings), **self.values(EncodingSettings)}:
            option = f"--{name.replace('_', '-')}"
            if name == "bad_bytes" or (name == "encoding" and self.data is None):
                readable = "texts on stdin or --data" if name == "encoding" else "texts on stdin"
                source = "--test" if self.data is None else "--data"
                _require_alone(self.data is None and self.test is None, f"{readable} with {option}", source)
            else:
                is_table = self.data is not None or self.calibrate is not None
                require_other(is_table, option, "--data or --calibrate")
        on_cluster = f"--engine {self.engine}" if self.engine != LOCAL else ""
        if self.data is not None:
            other = "--test" if self.test is not None else f"{on_cluster}, which predicts texts on stdin"
            _require_alone(self.test is None and not on_cluster, "a single source of texts with --data", other)
        if self.replies is not None:
            others = {"--test": self.test is not None, on_cluster: bool(on_cluster), "--also": bool(self.also)}
            for other, is_there in others.items():
                _require_alone(not is_there, "one model and contexts on stdin or with --data, for --replies", other)
        for name in ("calibrate",) if self.calibrate is not None else self.promise:
            others = {"--test": self.test is not None, "--replies": self.replies is not None, on_cluster: True}
            for other, is_there in others.items():
                _require_alone(not (other and is_there), f"texts on stdin or with --data, for --{name}", other)
        if self.save_threshold:
            _require_alone(not self.also, "one model, for --save-threshold", "--also")
            # A resumed file has to be of the same model folder.
            _require_alone(self.out is None or self.data is not None, "texts of --data with --out", "--save-threshold")
        for name in self.values(EntitySettings):
            others = {"--test": self.test is not None, on_cluster: bool(on_cluster), "--also": bool(self.also)}
            for other, is_there in others.items():
                _require_alone(not is_there, f"one model and texts on stdin or with --data, for --{name}", other)
        if self.test is not None:
            for name in self.values(AnswerSettings):
                option = f"--{name.replace('_', '-')}"
                _require_alone(False, f"a model that writes or chooses texts, for {option}", "--test")
            _require_alone(not self.also, "texts on stdin for several models", "--also with --test")
            _require_alone(not on_cluster, "texts on stdin for a cluster", f"{on_cluster} with --test")
            _require_alone(self.out is None, "texts on stdin for --out", "--test")
        is_resumable = self.out is not None and self.data is None
        require_other(not self.resume or is_resumable, "--resume", "--out, and texts on stdin")
        for option, value in (("--submission", self.submission), ("--task", self.task)):
            require_other(value is None or self.test is not None, option, "--test")


def _require_alone(condition: bool, expected: str, found: str) -> None:
    require(condition, expected=expected, found=found, fix="leave one of the two out")


@dataclasses.dataclass(frozen=True)
class ClassifyRequest(Request, EncodingSettings, ComputeSettings):
    """Texts, labels that are only named, and the models that choose among them."""

    texts: Annotated[
        "str | Path | Sequence[str] | Table",  # not checked with the other types, as columns of frames are read too
        Help(
            "a table (.csv, .tsv, .jsonl, .parquet), a file with one text per line, or - for stdin",
            library="texts, a table in memory, or a file: a table, or one text per line",
            flag="TEXTS",
            kind=str,
        ),
    ]
    labels: Annotated[
        "str | Path | Sequence[str] | Mapping[str, str] | Table",
        Help(
            "names of the labels, separated by commas; a text file with one name per line; or a table with a column "
            "name and perhaps description and examples (separated by |)",
            library="names of the labels, descriptions by name, a text file with one name per line, or a table with a "
            "column name and perhaps description and examples",
            metavar="NAME,...|FILE",
            kind=str,
        ),
    ]
    _: dataclasses.KW_ONLY
    model: str | Path = help_field(
        "starter",
        "a sentence encoder, or a model of entailment (fine-tuned on snli, mnli or the like)",
        metavar="DIR",
        path="the model",
        kind=str,
    )
    also: Sequence[str | Path] = help_field(
        (),
        "another model of either kind; log-probabilities of all are averaged; repeatable",
        metavar="DIR",
        path="also",
        kind=list[str],
    )
    multi_label: bool = help_field(False, "a text may have several labels, or none")
    threshold: float | None = help_field(
        None,
        "answer 'none of these' where the best label has a lower probability; with --multi-label, predict the labels "
        "from this probability on [0.5]",
        least=0,
        most=1,
    )
    template: Sequence[str] = help_field(
        (),
        "for a model of entailment: sentence with {} for the label; scores of several are averaged; repeatable "
        "[This example is {}.]",
        kind=list[str],
    )
    calibrate: File | None = file_field(
        "labelled texts, a table, to which the probabilities are fitted, and the threshold if some texts have the "
        "label 'none of these'",
        table=True,
    )
    label_column: str | None = help_field(None, "column of the label in --calibrate [detected by name]")
    prompt: str | None = help_field(None, "for a sentence encoder: one of its prompts [its default]", metavar="NAME")
    text_column: str | None = help_field(None, "column of the text [detected by name]")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_templates(self.template)
        require_other(self.label_column is None or self.calibrate is not None, "--label-column", "--calibrate")


def require_templates(templates: Sequence[str]) -> None:
    """Returns if all templates have a place for the label."""
    for template in templates:
        require(
            "{}" in template,
            expected="a template with {} for the label",
            found=repr(template),
            fix="write {} where the label belongs, as in 'It is about {}.'",
        )


@dataclasses.dataclass(frozen=True)
class FillRequest(Request, ComputeSettings, EncodingSettings):
    """A model with a masked-LM head, and a text with [MASK] in it."""

    model: Annotated[str | Path, MODEL]
    text: Annotated[str, Help("a text with [MASK] in it, or - for lines on stdin", flag="TEXT")]
    top: int = help_field(5, "candidates for each [MASK]", least=1)


@dataclasses.dataclass(frozen=True)
class NextRequest(Request, ComputeSettings):
    """A model with a next-sentence head, and sentences."""

    model: Annotated[str | Path, MODEL]
    first: Annotated[str, Help("a sentence", flag="A")]
    seconds: Annotated[Sequence[str], Help("one or more possible next sentences", flag="B...", kind=list[str])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How the pieces of a continuation are chosen: the most likely, or sampled if any of the first three is given."""

    temperature: float | None = help_field(
        None, "sample pieces at this temperature; 0: always the most likely one [1 if top_k or top_p is given, else 0]"
    )
    top_k: int | None = help_field(None, "sample from this many most likely pieces", most=10**6)
    top_p: float | None = help_field(
        None, "sample from the most likely pieces that together have this probability (nucleus sampling)"
    )
    seed: int = help_field(1, "seed for sampling", most=2**63)

    def __post_init__(self) -> None:
        temperature = self.temperature
        require_number("temperature", temperature, least=0)
        require_number("top_k", self.top_k, least=1)
        require_number("top_p", self.top_p, above=0, most=1)
        require_number("seed", self.seed, least=0)
        require_other(
            temperature != 0 or (self.top_k is None and self.top_p is None),
            "--top-p" if self.top_k is None else "--top-k",
            "a temperature above 0",
            "raise --temperature, or leave one of them out",
        )

    @property
    def draws(self) -> bool:
        """Whether pieces are drawn."""
        return bool(self.temperature) or self.top_k is not None or self.top_p is not None


@dataclasses.dataclass(frozen=True)
class CompleteRequest(Request, SamplingSettings, ComputeSettings, EncodingSettings):
    """A language model, a text, and how it is continued."""

    model: Annotated[str | Path, MODEL]
    text: Annotated[str, Help("a text to continue, or - for lines on stdin", flag="TEXT")]
    top: int = help_field(5, "candidates for the next piece", least=1)
    tokens: int = help_field(0, "also continue the text with up to this many pieces", least=0)


@dataclasses.dataclass(frozen=True)
class PerplexityRequest(Request, ComputeSettings, EncodingSettings):
    """Texts of a file, and a language model."""

    file: Annotated[str, TEXT_FILE]
    model: Annotated[str | Path, MODEL]
    _: dataclasses.KW_ONLY
    column: str | None = optional(None, COLUMN)
