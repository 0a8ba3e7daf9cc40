"""Training a translation model: from a file of pairs to a run folder."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.architectures import new_encoder_decoder
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.tokenizer_files import read_tokenizer_file
from bertsmith.recipes.translation.model_folder import TASK, write_translation_model
from bertsmith.recipes.translation.pairs import EncodedPairs, Pair, encode_pairs, read_pairs
from bertsmith.recipes.translation.request import TrainTranslationRequest
from bertsmith.recipes.translation.settings import TranslationSettings
from bertsmith.recipes.translation.workload import TranslationTraining
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import count_words
from bertsmith.training.loop.loop import TrainResult, train
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_request import request_of_run

_PATHS = ("pairs", "dev", "run.vocab")  # inputs given by path, whose content is compared by digest


@takes(TrainTranslationRequest)
def train_translation(request: TrainTranslationRequest) -> TrainResult:
    """The result of training an encoder-decoder on pairs of texts; OUT/model is the model, which `translate` reads.

    What is not given comes from the recipe of the paper (Vaswani et al., 2017).

    Raises:
        BertsmithError: a file, a setting or the run folder is invalid; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    if request.pairs is None:
        request = request_to_resume(request.out)
    assert request.pairs is not None, "a run has them"
    settings, training = request.part(TranslationSettings), request.training
    pairs, dev = Path(request.pairs), path_or_none(request.dev)
    Rank.from_environment().require_alone("a translation model")
    runtime = choose(settings.device, settings.precision)
    require(
        runtime.precision != "fp16",
        expected="bf16 or fp32 for training",
        found="fp16, whose gradients underflow without loss scaling",
        fix="use --precision bf16 or fp32",
    )
    with Run.open(request.out, resume=request.resume) as run:
        texts = read_pairs(pairs, settings.encoding)
        tokenizer = _tokenizer(texts, settings)
        encoded = encode_pairs(texts, tokenizer, settings.max_length, str(pairs))
        held_out = None if dev is None else _dev_pairs(dev, tokenizer, settings)
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
        digests = {"pairs": digest_file(pairs), "vocabulary": tokenizer.vocabulary.digest}
        digests |= {} if dev is None else {"dev": digest_file(dev)}
        run.start(record, digests, may_change=_PATHS, request=request)

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

        return train(workload, training, run.folder, write_model=write_model)


def request_to_resume(run: Path | str) -> TrainTranslationRequest:
    """The request that resumes a run, with its files and settings."""
    return request_of_run(
        TrainTranslationRequest, run, name="pairs", task=TASK, command="train-translation", settings=TranslationSettings
    )


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


def _tokenizer(texts: Sequence[Pair], settings: TranslationSettings) -> Tokenizer:
    """The tokenizer of both sides, which keeps the case of letters."""
    rules = TextRules(lowercase=False)
    if settings.vocab is None:
        counts = count_words((text for pair in texts for text in pair), rules)
        return WordPieceTokenizer(learn_vocabulary(counts, settings.pieces), rules)
    path = Path(settings.vocab)
    return read_tokenizer_file(path) if path.suffix == ".json" else WordPieceTokenizer(Vocabulary.load(path), rules)
