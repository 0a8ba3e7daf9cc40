"""Training a model of texts with codes: from tables of segments to a run folder, RUN/model with the model."""

from pathlib import Path

from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.frozen_rows import TableWithFrozenRows, whole_tables
from bertsmith.recipes.video.growth import CodePieces, grown
from bertsmith.recipes.video.request import TrainVideoRequest
from bertsmith.recipes.video.rows import EncodedSegments
from bertsmith.recipes.video.segments import frequent_codes, read_segments, split_segments
from bertsmith.recipes.video.settings import VideoSettings
from bertsmith.recipes.video.workload import VideoTraining
from bertsmith.text.codes.feature_words import FeatureWords
from bertsmith.text.tokenizers.pack import require_positions
from bertsmith.training.loop.loop import TrainResult, train
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_request import request_of_run

TASK = "texts with codes"
_PATHS = ("segments", "events", "words", "dev")  # inputs given by path, whose content is compared by digest


@takes(TrainVideoRequest)
def train_video(request: TrainVideoRequest) -> TrainResult:
    """The result of training a BERT on texts with codes; OUT/model is the model.

    Raises:
        BertsmithError: a file, a setting or the run folder is invalid; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    if request.segments is None:
        request = request_of_run(
            TrainVideoRequest,
            request.out,
            name="segments",
            task=TASK,
            command="codes train-video",
            settings=VideoSettings,
            also=("events", "words", "init"),
        )
    assert request.segments is not None, "a run has them"
    settings = request.part(VideoSettings)
    Rank.from_environment().require_alone("a model of texts with codes")
    runtime = choose(settings.device, settings.precision)
    paths = {name: path for name in _PATHS if (path := path_or_none(getattr(request, name))) is not None}
    with Run.open(request.out, resume=request.resume) as run:
        start = load_any(request.init)
        longest = min(settings.max_length, start.config.max_tokens)
        if "max_length" in request.given and not request.resume:
            require_positions(settings.max_length, longest, fix="longer rows are cut")
        elif longest < settings.max_length:
            warn(f"max_length reduced from {settings.max_length} to {longest}, the positions of the model")
        segments = read_segments(paths["segments"], paths.get("events"), encoding=settings.encoding)
        if "dev" in paths:
            dev = read_segments(paths["dev"], paths.get("events"), encoding=settings.encoding, silent=False)
            if "events" in paths:  # those of a held-out segment are events outside of the others
                held_out_subjects = {segment.subject for segment in dev}
                segments = [each for each in segments if each.text or each.subject not in held_out_subjects]
        else:
            segments, dev = split_segments(segments, settings.dev_share, request.seed)
        training = request.training(len(segments))
        words = FeatureWords.load(paths["words"]) if "words" in paths else None
        names = list(frequent_codes(segments, settings.minimum_count)) if words is None else words.names
        require(
            bool(names),
            expected=f"codes that occur at least {settings.minimum_count} times in '{paths['segments']}'",
            found="none",
            fix="lower --minimum-count, or add codes",
        )
        folder = grown(start, names, None if words is None else words.centroids, request.seed)
        tokenizer = folder.require_tokenizer()
        codes = CodePieces.of(tokenizer, str(request.out))
        _warn_of_others(codes, [code for segment in segments for code in segment.codes], "training")
        _warn_of_others(codes, [code for segment in dev for code in segment.codes], "held-out")
        encoded, held_out = (EncodedSegments(part, tokenizer, codes) for part in (segments, dev))
        require(len(encoded) > 0, expected="segments with a text or a known code", found="none", fix="name others")
        is_frozen = words is not None and settings.freeze
        tell(
            f"{counted(len(encoded), 'segment')} to train on, {len(held_out):,} held out; {counted(len(names), 'code')}"
            + (", whose rows are frozen" if is_frozen else "")
        )
        if lost := len(segments) + len(dev) - len(encoded) - len(held_out):
            warn(f"segments without a text or a known code, left out: {lost:,}")
        if longer := encoded.longer_than(longest):
            warn(f"segments of more than {longest} tokens, whose rows are cut: {longer:,}")
        elif settings.join and (longer := encoded.longer_than(longest, joined=True)):
            warn(
                f"segments that have more than {longest} tokens when they are joined with the next one, "
                f"whose rows are cut then: {longer:,}"
            )
        record = {
            "task": TASK,
            **{name: str(paths[name]) if name in paths else None for name in _PATHS},
            "init": str(request.init),
            "run": to_dict(settings),
            "train": to_dict(training),
            "runtime": {"device": runtime.device, "precision": runtime.precision},
        }
        digests = {name: digest_file(path) for name, path in paths.items()} | {
            "init vocabulary": start.require_tokenizer().vocabulary.digest
        }
        run.start(record, digests, may_change=(*_PATHS, "init"), request=request)
        loaded = load_pretrained(folder, seed=request.seed)
        model = loaded.model
        if is_frozen:
            table = TableWithFrozenRows(model.encoder.word_table, codes.first)
            model.encoder.get_submodule("embeddings").add_module("word", table)
        workload = VideoTraining(model, tokenizer, codes, encoded, held_out, runtime, settings, request.seed)
        if not workload.higher_is_better():
            warn("no held-out segment has both a text and known codes, so nothing is evaluated")

        def write_model(path: Path, result: TrainResult) -> None:
            metadata = ModelMetadata(
                task="pretraining",
                objective="text+codes",
                trained_on=digests,
                training={"initial model": str(request.init), "codes": len(names)},
                steps=result.kept_step,
                tokens=result.kept_tokens,
                continued_from=start.metadata.as_initial_model(),
                licence=start.metadata.licence,
                scores=result.scores,
            )
            write_model_folder(
                path,
                config=folder.config,
                tensors=whole_tables(model.state_dict()),
                tokenizer=tokenizer,
                metadata=metadata,
                replace=True,
            )

        return train(workload, training, run.folder, write_model=write_model)


def _warn_of_others(codes: CodePieces, listed: list[str], kind: str) -> None:
    if unknown := sum(code not in codes.index for code in listed):
        warn(f"{unknown:,} of {counted(len(listed), f'{kind} code')} are none of the model, and left out")
