"""`bertsmith pretrain` as a function: from a corpus folder to a model folder.

::

    RUN/model/         a Hugging Face folder, rewritten when the run ends
    RUN/settings.json  provenance: settings, versions, machine, digests of corpus, vocabulary and initial model
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import from_dict, require, to_dict
from bertsmith.base.machine.runtime import Rank, Runtime, choose
from bertsmith.base.processes.distributed import in_turn, on_every_rank
from bertsmith.base.processes.sharding import Division
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.files import digest_file, read_json
from bertsmith.models.checkpoints.architectures import read_config, require_architecture
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.products.compiled import compile_layers
from bertsmith.text.corpus.manifest import MANIFEST
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.corpus.streamed import StreamedCorpus
from bertsmith.training.loop.clock import BY_PROCESSOR, Clock
from bertsmith.training.loop.loop import TrainResult, train
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import PREPARED, RunFolder
from bertsmith.training.loop.settings import BUDGETS, TrainSettings
from bertsmith.training.loop.teaching import Teaching
from bertsmith.training.pretraining.fit import (
    check_fit,
    check_precision,
    check_rules,
    check_vocabulary,
    tell_of_few_held_out,
    warn_without_running_text,
)
from bertsmith.training.pretraining.initialization import initialize_from_corpus
from bertsmith.training.pretraining.language_model import LanguageModeling
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.report import write_report
from bertsmith.training.pretraining.segmented_words import segmenter_versions, warn_of_words
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.training.pretraining.spans import walk_next_sentence
from bertsmith.training.pretraining.workload import Pretraining

# Inputs given by path; their content is compared by digest, so a run can be resumed after they were moved.
PLACES = ("corpus", "run.init", "run.config", "run.corpus_cache", "run.cache_megabytes")
# Settings that a run may be resumed with until its number of steps is known, because a budget can prove too small.
_UNTIL_RESOLVED = tuple(f"train.{name}" for name in (*BUDGETS, "warmup_steps"))


def pretrain(
    corpus: Path | str,
    out: Path | str,
    settings: PretrainingRunSettings,
    data: PretrainingDataSettings,
    training: TrainSettings,
    *,
    resume: bool = False,
    teaching: Teaching | None = None,
    by_processor: bool = False,
    request: Request | None = None,
) -> TrainResult:
    """Pre-trains a model on a corpus and writes RUN/model and RUN/report.html.

    Args:
        resume: resume the run in `out`, which must have the same settings and inputs; the budget may be another one
            if the run was stopped before its number of steps was known, while steps were timed for its minutes.
        by_processor: a budget in minutes counts processor time, see `Clock.of_run`; for a single process on a CPU.

    Raises:
        BertsmithError: the corpus, initial model, settings or run folder do not fit; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    runtime = choose(settings.device, settings.precision)
    check_precision(runtime.precision)
    _require_processes(Rank.from_environment(), settings, data, training)
    with Run.open(out, resume=resume, device=settings.device, besides=PREPARED) as run:
        clock = Clock.of_run(run.rank, runtime.device, by_processor=by_processor, before=run.before)

        # The corpus, the model and the work: what does not fit is refused before there is a folder.
        source = open_corpus(Path(corpus), settings, run.rank)
        runtime.tell()
        if run.rank.index == 0:
            warn_without_running_text(source, data)
        division = Division(run.rank, runtime.torch_device) if training.shard and run.rank.count > 1 else None
        start = _start(settings, data, training.seed, source, division)
        workload = workload_of(start.model, source, data, runtime, settings, teaching)

        # The record, in a new folder or compared with that of the run.
        record = _record(corpus, start.model.config, settings, data, training, runtime, clock, teaching)
        digests = {
            "corpus": digest_file(source.folder / MANIFEST),
            "vocabulary": source.tokenizer.vocabulary.digest,
            **start.digests,
            **({"segmenter": segmenter_versions(data.segmented)} if data.segmented else {}),
            **({} if teaching is None else teaching.digests),
        }
        unresolved = _UNTIL_RESOLVED if run.before and not run.before.get("resolved") else ()
        run.start(record, digests, may_change=(*PLACES, BY_PROCESSOR, *unresolved), request=request)

        # The first parameters, the steps, the model folder and the report.
        if run.folder.last_step() is None:
            if settings.initialization == "corpus":
                initialize_from_corpus(start.model, source, training.seed)
            if teaching is not None:
                teaching.initialize(start.model)

        def write_model(folder: Path, result: TrainResult) -> None:
            metadata = ModelMetadata(
                task="pretraining",
                objective=data.objective,
                trained_on=digests,
                training={
                    **_languages(source),
                    **_selection(training, result),
                    **({} if teaching is None else teaching.origin),
                },
                steps=result.kept_step,
                tokens=result.kept_tokens,
                continued_from=start.history,
                scores=result.scores,
            )
            trained = workload.objective.trained_parts if teaching is None or teaching.trains_own else ()
            parts = (*trained, *start.kept_parts)
            save_pretrained(folder, start.model, source.tokenizer, metadata, trained=parts, replace=True)

        result = train(
            workload,
            training,
            run.folder,
            rank=run.rank,
            write_model=write_model,
            clock=clock,
        )
        if result.steps:  # a callback may end the training before the first
            run.on_first_rank(lambda: write_report([run.path]))
        return result


def _require_processes(
    rank: Rank, settings: PretrainingRunSettings, data: PretrainingDataSettings, training: TrainSettings
) -> None:
    """Refuses settings that several processes cannot train with."""
    if OBJECTIVES[data.objective].carries_state:
        rank.require_alone(f"{data.objective}, which carries the state of the model from step to step")
    require(
        rank.count == 1 or not (settings.compile and training.shard),
        expected="--shard or --compile",
        found="both; compiled layers cannot be divided among processes",
        fix="leave one out",
    )


def _record(
    corpus: Path | str,
    model: EncoderConfig,
    settings: PretrainingRunSettings,
    data: PretrainingDataSettings,
    training: TrainSettings,
    runtime: Runtime,
    clock: Clock,
    teaching: Teaching | None,
) -> dict[str, Any]:
    """The settings of a run, by topic, for its settings.json."""
    return {
        "task": "pretraining",
        "corpus": str(corpus),
        "model": to_dict(model),
        "run": to_dict(settings),
        "data": to_dict(data),
        "train": to_dict(training),
        "runtime": {"device": runtime.device.split(":")[0], "precision": runtime.precision},
        **({} if teaching is None else {"teaching": dict(teaching.record)}),
        **clock.record(),
    }


def open_corpus(corpus: Path, settings: PretrainingRunSettings, rank: Rank, *, verify: bool = True) -> Corpus:
    """The corpus in a folder or at an address, verified once for each machine unless `verify` is False.

    The index of one at an address is made if it is not in the cache; making it verifies the shards in any case.
    """
    address = address_of(corpus)
    if address is None:
        # The entropy needs every token anyway, so the digests cost little extra.
        return on_every_rank(lambda: Corpus.open(corpus, verify=verify and rank.local_index == 0), rank)
    cache = Path(settings.corpus_cache or "~/.cache/bertsmith/corpora").expanduser()

    def opened() -> Corpus:
        return StreamedCorpus.open_at(address, cache, limit=settings.cache_megabytes * 2**20)

    on_every_rank(lambda: opened() if rank.local_index == 0 else None, rank)  # who makes the index for its machine
    return in_turn(opened, rank)


def config_of(settings: PretrainingRunSettings, data: PretrainingDataSettings, corpus: Corpus) -> EncoderConfig:
    """The configuration of the model that a run with these settings trains; its parameters are not made."""
    objective = OBJECTIVES[data.objective]
    if settings.init is not None:
        config = load_any(settings.init).config
        of_architecture: dict[str, Any] = {"is_causal": objective.is_causal}
    else:
        config = _config(settings, len(corpus.tokenizer.vocabulary), {"is_causal": objective.is_causal})
        of_architecture = dict(config.direction_changes(backward=objective.is_backward))
    if settings.dropout is not None:
        of_architecture |= config.dropout_changes(settings.dropout)
    return dataclasses.replace(config, **of_architecture)


def workload_of(
    model: EncoderForPreTraining,
    source: Corpus,
    data: PretrainingDataSettings,
    runtime: Runtime,
    settings: PretrainingRunSettings,
    teaching: Teaching | None = None,
) -> Pretraining | LanguageModeling:
    """The work of a run: rows, or tracks of contiguous text; nothing is written."""
    require(
        teaching is None or (data.masked and not data.pairs),
        expected="masked pieces alone, to learn from a teacher",
        found=data.objective,
        fix="use --objective mlm",
    )
    unigram, vocabulary = source.token_counts(), source.tokenizer.vocabulary
    if OBJECTIVES[data.objective].walk is walk_next_sentence and len(_languages(source).get("languages", ())) > 1:
        warn(
            f"the random next sentences of {data.objective} mostly come from another language of the corpus, which is "
            "easy to see; --objective mlm does without them"
        )
    tell_of_few_held_out(source.held_out())
    if data.whole_word:
        warn_of_words(source.tokenizer.rules, vocabulary, unigram, data.segmented)
    if settings.compile:
        compile_layers(model.encoder, runtime.device)
    if OBJECTIVES[data.objective].carries_state:
        return LanguageModeling(model, source, source.held_out(), vocabulary, data, runtime, settings, unigram=unigram)
    for name in ("activation_penalty", "change_penalty"):
        require(
            not getattr(settings, name),
            expected=f"no {name} for an objective that reads rows",
            found=getattr(settings, name),
            fix="leave it out",
        )
    return Pretraining(
        model, source, source.held_out(), vocabulary, data, runtime, settings, unigram=unigram, teaching=teaching
    )


def _languages(source: Corpus) -> dict[str, Any]:
    """The languages of a corpus with their shares, for the metadata; nothing if it was not read by language."""
    by_name = source.manifest.get("languages", {}).get("by_name", {})
    return {"languages": {name: round(language["share"], 6) for name, language in by_name.items()}} if by_name else {}


def _selection(training: TrainSettings, result: TrainResult) -> dict[str, Any]:
    """How the model was selected, for its metadata; nothing if it is that of the last step."""
    if result.best_step is None:
        return {}
    return {"kept_best": training.keep_best, "best_step": result.best_step, "steps_of_run": result.steps}


def settings_of_run(
    run: Path | str,
) -> tuple[str, PretrainingRunSettings, PretrainingDataSettings, TrainSettings]:
    """The corpus folder and the settings of a run, to resume it."""
    record = RunFolder.open(Path(run)).record["settings"]
    where = f"{run}/settings.json"
    return (
        str(record.get("corpus", "")),
        from_dict(PretrainingRunSettings, record.get("run", {}), where),
        from_dict(PretrainingDataSettings, record.get("data", {}), where),
        from_dict(TrainSettings, record.get("train", {}), where),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Start:
    """The model that a run starts from.

    Attributes:
        kept_parts: parts that are written though nothing trains them. The pooler is such a part: fine-tuning starts
            better from the pooler of the source than from a random one.
        history: `continued_from` of the metadata, None for a new model.
    """

    model: EncoderForPreTraining
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kept_parts: tuple[str, ...] = ()
    history: Mapping[str, Any] | None = None


def _start(
    settings: PretrainingRunSettings,
    data: PretrainingDataSettings,
    seed: int,
    corpus: Corpus,
    division: Division | None = None,
) -> _Start:
    """The model of `--init`, or a new one, after a check that it fits the corpus."""
    if settings.init is None:
        config = config_of(settings, data, corpus)
        check_fit(config, settings, data, corpus)
        return _Start(model=untrained(config, seed, corpus.tokenizer.vocabulary, division))
    objective = OBJECTIVES[data.objective]
    changes: dict[str, Any] = {"is_causal": objective.is_causal}
    folder = load_any(settings.init)
    if settings.dropout is not None:
        changes |= folder.config.dropout_changes(settings.dropout)
    loaded = load_pretrained(folder, seed=seed, changes=changes, division=division)
    if loaded.tokenizer is not None:
        check_vocabulary(loaded.tokenizer.vocabulary, corpus, settings.init)
        check_rules(loaded.tokenizer.rules, corpus.rules, settings.init)
    check_fit(loaded.model.config, settings, data, corpus)
    if missing := sorted(set(loaded.new_heads) & set(objective.trained_parts)):
        tell(f"missing from the initial model, so randomly initialized: {', '.join(missing)}")
    return _Start(
        model=loaded.model,
        digests={"init": digest_of_tensors(loaded.model.state_dict())},
        kept_parts=() if "pooler" in loaded.new_heads or objective.is_causal else ("pooler",),
        history=folder.metadata.as_initial_model(),
    )


def new_model(
    settings: PretrainingRunSettings, data: PretrainingDataSettings, seed: int, corpus: Corpus
) -> EncoderForPreTraining:
    """The model that a run with these settings starts from, before what it may take from the corpus."""
    return _start(settings, data, seed, corpus).model


def _config(settings: PretrainingRunSettings, pieces: int, changes: Mapping[str, Any]) -> EncoderConfig:
    if settings.config is not None:
        return dataclasses.replace(read_config(read_json(Path(settings.config))), **changes)
    assert settings.size is not None
    longest = 512 if settings.long_length is None else max(512, settings.long_length)
    shape: dict[str, Any] = {"vocab_size": pieces, "max_position_embeddings": longest}
    new = require_architecture(settings.architecture or "bert").config
    choices = {
        "heads": ("num_attention_heads", settings.heads),
        "positions": ("position_embedding_type", settings.positions),
    }
    for option, (field, value) in choices.items():
        if value is not None:
            require(
                field not in new.omitted,
                expected=f"an architecture with a choice of {option}",
                found=new.display_name,
                fix=f"leave --{option} out",
            )
            shape[field] = value
    return new.named(settings.size, **shape, **changes)
