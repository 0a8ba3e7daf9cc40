"""`bertsmith adapt` as a function: from a model and domain text to an adapted model and a report.

::

    RUN/settings.json   settings, machine, versions, digests of model and text
    RUN/start/          with grafted words: the model with them, before training; for a new model its config.json
    RUN/corpus/         token shards of the text
    RUN/run/            the pre-training run
    RUN/before.json     the losses of the model as it was, if it has a masked-LM head
    RUN/model/          the adapted model, with sources and licence in its card
    RUN/from-scratch/   on request, a new model with a vocabulary of the domain: its start/, corpus/ and run/
    RUN/task/           on request, the fine-tunings on a task (see arms)
    RUN/report.json, report.html
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import short_repr, tell, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import AUTO, require, to_dict
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.processes.distributed import on_first_rank
from bertsmith.base.processes.sharding import Division
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.recipes.adaptation.arms import DomainTask, score_arm, task_report
from bertsmith.recipes.adaptation.continued import continued, final_model
from bertsmith.recipes.adaptation.forecast import Forecast, figures_of
from bertsmith.recipes.adaptation.masked_words import Passage, WordLoss, passages_of, word_loss
from bertsmith.recipes.adaptation.preparation import Prepared, has_masked_lm_head, prepare, prepared_from_scratch
from bertsmith.recipes.adaptation.report import (
    DOMAIN,
    GENERAL,
    fragmentation,
    lines_below,
    loss_values,
    table_of,
    write_report,
)
from bertsmith.recipes.adaptation.settings import ADAPTED, AS_IT_IS, FROM_SCRATCH, AdaptationSettings, AdaptRequest
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.tokenizers.pack import require_positions
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.vocabularies.word_counts import count_words
from bertsmith.training.loop.run import Run

BEFORE_FILE = "before.json"
# What a resumed run may have others of: inputs given by path, whose content is compared by digest, and who holds what.
_MAY_CHANGE = ("model", "texts", "general", "adaptation.shard")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptationResult:
    """What an adaptation changed."""

    report: Mapping[str, Any]
    model: Path
    page: Path

    __repr__ = short_repr

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of the table: each quantity before and after."""
        return table_of(self.report)

    def lines(self) -> list[str]:
        """The sentences of the report."""
        return lines_below(self.report)


def _require_lengths(request: AdaptRequest, folder: ModelFolder) -> None:
    """Refuses rows, if their length was given, for which the model has no positions; the default is reduced to fit."""
    if "max_length" in request.given:
        fix = "a longer document fills several rows"
        require_positions(request.max_length, folder.config.max_tokens, fix=fix)


@takes(AdaptRequest)
def forecast_adaptation(request: AdaptRequest) -> Forecast:
    """Whether the text is enough, whether the vocabulary fits, and how long an adaptation takes; nothing is trained."""
    chosen, reading = request.part(AdaptationSettings), request.part(ReadingSettings)
    folder, paths = load_any(request.model), _paths(request.texts)
    _require_lengths(request, folder)
    return prepare(folder, paths, chosen, reading, from_scratch=request.from_scratch).forecast


@takes(AdaptRequest)
def adapt(request: AdaptRequest) -> AdaptationResult:
    """The result of adapting a model to the text of a domain; OUT/model is the model, and `load(out)` loads it.

    A model without a masked-LM head gets a new one.

    Raises:
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    if request.out is None:
        raise ConfigError(expected="--out RUN, or --check", found="neither", fix="name a folder for the run")
    request.require_task()
    chosen, reading, from_scratch = (
        request.part(AdaptationSettings),
        request.part(ReadingSettings),
        request.from_scratch,
    )
    model = request.model
    with Run.open(request.out, resume=request.resume, device=chosen.device) as run:
        # The model, the task and the text: what does not fit is refused before anything is written.
        if chosen.vocabulary == AUTO and run.is_resumed:
            chosen = dataclasses.replace(chosen, vocabulary=_way_before(run))
        folder, paths, general_paths = load_any(model), _paths(request.texts), _paths(request.general)
        _require_lengths(request, folder)
        domain_task = None
        if request.task is not None:
            domain_task = DomainTask.read(
                request.task,
                path_or_none(request.train),
                path_or_none(request.dev),
                columns=request.part(ColumnSettings),
                seeds=request.seeds,
                folder=folder,
            )
        prepared = run.on_every_rank(
            lambda: prepare(folder, paths, chosen, reading, general=general_paths, from_scratch=from_scratch)
        )
        new = prepared_from_scratch(prepared) if from_scratch else None  # too little text shows before any training
        for note in prepared.text.notes:
            warn(note)
        for line in prepared.forecast.lines():
            tell(line)

        record = {
            "task": "adaptation",
            "model": str(model),
            "texts": [str(path) for path in paths],
            "general": [str(path) for path in general_paths],
            "adaptation": to_dict(prepared.settings),
            "reading": to_dict(reading),
            "field_task": None if domain_task is None else {**domain_task.record(), "from_scratch": from_scratch},
        }
        digests = {
            "initial model": digest_of_tensors(folder.tensors),
            **prepared.text.digests,
            **({} if domain_task is None else domain_task.digests()),
        }
        run.start(record, digests, may_change=_MAY_CHANGE, request=request)

        # The losses before, the pre-training, the adapted model, the losses after.
        passages = _passages(prepared, chosen)
        before = _losses_before(prepared, passages, run) if has_masked_lm_head(prepared.folder) else None
        made = continued(prepared, run.path, str(model), run)
        adapted = Path(run.from_first_rank(lambda: str(final_model(prepared, run.path, str(model), made))))
        after = _losses(load_any(adapted), passages, chosen, run.rank)

        # The task on each of the models.
        if domain_task is not None:
            arms: dict[str, str | Path] = {AS_IT_IS: model, ADAPTED: adapted}
            if new is not None:
                arms[FROM_SCRATCH] = continued(new, run.path / FROM_SCRATCH, str(model), run).model
            for arm, start in arms.items():
                score_arm(arm, start, domain_task, run, chosen)

        def report() -> dict[str, Any]:
            assert after is not None, "rank 0 measured it"
            return {
                "trained": made.line(prepared),
                "added": list(prepared.added[:50]),
                "fragmentation": _fragmentation(prepared),
                "shared_pieces": _shared_pieces(prepared.folder.require_tokenizer(), prepared.tokenizer),
                "losses": {
                    name: {"after": loss_values(after[name])}
                    if before is None
                    else {"before": loss_values(before[name]), "after": loss_values(after[name], before[name])}
                    for name in passages
                },
                "task": None if domain_task is None else task_report(run.path),
                "forecast": prepared.forecast.to_dict(),
                "advice": prepared.forecast.advice(),
                "texts": made.texts,
                **{part: run.folder.record[part] for part in ("settings", "machine", "versions")},
            }

        reported = run.from_first_rank(report)
        page = run.from_first_rank(lambda: str(write_report(run.path, reported)))
        return AdaptationResult(report=reported, model=adapted, page=Path(page))


def _way_before(run: Run) -> str:
    """How a resumed run adapts its model; a release that chose otherwise may have started it."""
    return str(run.before["settings"].get("adaptation", {}).get("vocabulary", AUTO))


def _paths(texts: Sequence[str | Path]) -> list[Path]:
    """The files and folders."""
    require(
        "-" not in map(str, texts),
        expected="files or folders, which are read several times",
        found="- for stdin",
        fix="save the text in a file",
    )
    return [Path(path) for path in texts]


def _passages(prepared: Prepared, settings: AdaptationSettings) -> dict[str, list[Passage]]:
    """The passages on which losses are measured, by the name of the text; without those that no passage is made of."""
    tokenizers = [prepared.folder.require_tokenizer(), prepared.tokenizer]
    room = prepared.max_length - tokenizers[0].template.num_special(1)
    texts = {DOMAIN: prepared.text.held_out, GENERAL: prepared.general}
    by_text = {
        name: passages_of(documents, tokenizers, room=room, seed=settings.seed) for name, documents in texts.items()
    }
    return {name: passages for name, passages in by_text.items() if passages}


def _losses(
    folder: ModelFolder, passages: Mapping[str, Sequence[Passage]], settings: AdaptationSettings, rank: Rank
) -> dict[str, WordLoss] | None:
    """The losses, measured by rank 0 alone, unless the model is divided: then every process makes all passes."""
    runtime, tokenizer = choose(settings.device, "fp32"), folder.require_tokenizer()

    def measured(division: Division | None = None) -> dict[str, WordLoss]:
        model = load_pretrained(folder, division=division).model
        return {name: word_loss(model, tokenizer, some, runtime) for name, some in passages.items()}

    if settings.shard and rank.count > 1:
        return measured(Division(rank, runtime.torch_device))
    return on_first_rank(measured, rank)


def _losses_before(prepared: Prepared, passages: Mapping[str, Sequence[Passage]], run: Run) -> dict[str, WordLoss]:
    """The losses of the model as it was; measured once in a run."""
    path = run.path / BEFORE_FILE
    if not run.has(path):
        losses = _losses(prepared.folder, passages, prepared.settings, run.rank) or {}
        run.on_first_rank(lambda: write_json(path, {name: dataclasses.asdict(loss) for name, loss in losses.items()}))
    return {
        name: WordLoss(nats=tuple(loss["nats"]), words=tuple(loss["words"]), characters=loss["characters"])
        for name, loss in read_json(path).items()
    }


def _shared_pieces(before: Tokenizer, after: Tokenizer) -> float:
    """The share of the vocabulary of the model as it was that is in that of the adapted model, |A and B| / |A|.

    Source: Beltagy et al. (2019), "SciBERT: A Pretrained Language Model for Scientific Text", section 2.
    """
    old, new = set(before.vocabulary.pieces), set(after.vocabulary.pieces)
    return round(len(old & new) / len(old), 4)


def _fragmentation(prepared: Prepared) -> dict[str, Any]:
    """How both vocabularies split the held-out text and the general text."""
    rules = prepared.tokenizer.rules
    sentences = [sentence for document in prepared.general for sentence in document]
    texts = {DOMAIN: prepared.text.held_out_words, GENERAL: count_words(sentences, rules)}
    both = {"before": prepared.folder.require_tokenizer(), "after": prepared.tokenizer}
    return {
        name: {when: fragmentation(figures_of(tokenizer, counts, name)) for when, tokenizer in both.items()}
        for name, counts in texts.items()
        if len(counts)
    }
