"""Training a translation model: from a file of pairs to a run folder."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.settings import from_dict, require, to_dict
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import digest_file
from bertsmith.models.encoders.encoder_decoders import new_encoder_decoder
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.tokenizer_files import read_tokenizer_file
from bertsmith.recipes.translation.model_folder import TASK, write_translation_model
from bertsmith.recipes.translation.pairs import EncodedPairs, Pair, encode_pairs, read_pairs
from bertsmith.recipes.translation.settings import TranslationSettings
from bertsmith.recipes.translation.workload import TranslationTraining
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import count_words
from bertsmith.training.loop.loop import OnEvaluation, TrainResult, train
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings

_PATHS = ("pairs", "dev", "run.vocab")  # inputs given by path, whose content is compared by digest


def train_translation(
    pairs: Path | str,
    out: Path | str,
    settings: TranslationSettings,
    training: TrainSettings,
    *,
    dev: Path | str | None = None,
    resume: bool = False,
    on_evaluation: OnEvaluation | None = None,
) -> TrainResult:
    """Trains an encoder-decoder on pairs of texts and writes RUN/model.

    Args:
        pairs: a file with a source text, a tab and a target text on each line.
        out: the run folder; new, unless `resume`.
        dev: further pairs, for evaluation.
        resume: resume the run in `out`, which must have the same settings and inputs.
        on_evaluation: see `train`.

    Raises:
        BertsmithError: files, settings or run folder do not fit; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    processes = Rank.from_environment().count
    require(
        processes == 1,
        expected="one process for a translation model",
        found=f"{processes} processes",
        fix="start it without torchrun",
    )
    runtime = choose(settings.device, settings.precision)
    require(
        runtime.precision != "fp16",
        expected="bf16 or fp32 for training",
        found="fp16, whose gradients underflow without loss scaling",
        fix="use --precision bf16 or fp32",
    )
    with Run.open(out, resume=resume) as run:
        texts = read_pairs(Path(pairs), settings.encoding)
        tokenizer = _tokenizer(texts, settings)
        encoded = encode_pairs(texts, tokenizer, settings.max_length, str(pairs))
        held_out = None if dev is None else _dev_pairs(Path(dev), tokenizer, settings)
        model = new_encoder_decoder(settings.config(len(tokenizer.vocabulary)), seed=training.seed)
        workload = TranslationTraining(model, encoded, held_out, tokenizer, runtime, settings, training.seed)
        runtime.tell()

        record = {
            "task": TASK,
            "pairs": str(pairs),
            "dev": None if dev is None else str(dev),
            "model": to_dict(model.config),
            "run": to_dict(settings),
            "train": to_dict(training),
            "runtime": {"device": runtime.device.split(":")[0], "precision": runtime.precision},
        }
        digests = {"pairs": digest_file(Path(pairs)), "vocabulary": tokenizer.vocabulary.digest}
        digests |= {} if dev is None else {"dev": digest_file(Path(dev))}
        run.start(record, digests, may_change=_PATHS)

        def write_model(folder: Path, result: TrainResult) -> None:
            metadata = ModelMetadata(
                task=TASK,
                trained_on=digests,
                steps=result.kept_step,
                tokens=result.kept_tokens,
                scores=result.scores,
            )
            write_translation_model(
                folder, model, tokenizer, metadata, scored_pairs=workload.scored_pairs, replace=True
            )

        return train(workload, training, run.folder, write_model=write_model, on_evaluation=on_evaluation)


def _dev_pairs(path: Path, tokenizer: Tokenizer, settings: TranslationSettings) -> tuple[list[Pair], EncodedPairs]:
    """The dev pairs, as texts and encoded; none of them may be longer than the model reads."""
    pairs, longest = read_pairs(path, settings.encoding), settings.config(1).max_tokens
    encoded = encode_pairs(pairs, tokenizer, longest, str(path))
    require(
        len(encoded) == len(pairs),
        expected=f"dev pairs of at most {longest} tokens",
        found=f"{len(pairs) - len(encoded)} longer ones",
        fix="remove them from the file",
    )
    return pairs, encoded


def settings_of_run(run: Path | str) -> tuple[str, str | None, TranslationSettings, TrainSettings]:
    """The files of pairs and the settings of a run, to resume it."""
    record, where = RunFolder.open(Path(run)).record["settings"], f"{run}/settings.json"
    require(
        record.get("task") == TASK,
        expected=f"a run of train-translation in '{run}'",
        found=f"task {record.get('task')!r}",
        fix="name another folder",
    )
    return (
        str(record.get("pairs", "")),
        record.get("dev"),
        from_dict(TranslationSettings, record.get("run", {}), where),
        from_dict(TrainSettings, record.get("train", {}), where),
    )


def _tokenizer(texts: Sequence[Pair], settings: TranslationSettings) -> Tokenizer:
    """The tokenizer of both sides, which keeps the case of letters."""
    rules = TextRules(lowercase=False)
    if settings.vocab is None:
        counts = count_words((text for pair in texts for text in pair), rules)
        return WordPieceTokenizer(learn_vocabulary(counts, settings.pieces), rules)
    path = Path(settings.vocab)
    return read_tokenizer_file(path) if path.suffix == ".json" else WordPieceTokenizer(Vocabulary.load(path), rules)
