"""The command-line application: the list of commands, and error handling.

Exit codes: 0 success; 1 an error that the user can fix, explained in one line; 2 wrong usage; 130 stopped by Ctrl-C.
"""

import errno
import inspect
import os
import sys
from collections.abc import Callable, Container, MutableMapping, Sequence
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from bertsmith import __version__
from bertsmith.cli import (
    adaptation,
    comparison,
    convert,
    corpus,
    distillation,
    documents,
    finetuning,
    inference,
    plan,
    prediction,
    pretraining,
    search,
    serve,
    sizes,
    text,
    translation,
    vectors,
    vocabulary,
    word_vectors,
)
from bertsmith.cli.options import note, with_settings
from bertsmith.cli.usage import UsageError, require_one_process, usage_line
from bertsmith.errors import BertsmithError
from bertsmith.remote import require_host

# Rounds that a waiting thread of torch spins before it sleeps: about 25 microseconds, as long as the pauses between the
# products of a forward pass. benchmarks/busy_machine.py --spins compares other values.
SPINS = "1000"


class Command(NamedTuple):
    """A command, with the example shown in its help and in docs/commands.md.

    Attributes:
        settings: a function that returns the settings classes whose fields become options. It is only called for the
            command that runs, because the classes may be in packages that are slow to import.
        not_run: why the check of the docs skips the example; empty if the example is run.
        misplaced: what to do with an extra argument, such as a file given to a command that reads stdin.
        trains: it may run as several processes of `torchrun`.
    """

    function: Callable[..., None]
    name: str
    example: str
    settings: Callable[[], Sequence[type]] = tuple
    not_run: str = ""
    misplaced: str = ""
    trains: bool = False


COMMANDS = (
    Command(pretraining.demo, "demo", "bertsmith demo --minutes 1 --text my-text --out my-demo"),
    Command(
        vocabulary.vocab, "vocab", "bertsmith vocab my-text --size 8000 --out vocab.txt", vocabulary.vocab_settings
    ),
    Command(
        text.tokenize,
        "tokenize",
        "echo 'Who was Jim Henson?' | bertsmith tokenize --vocab vocab.txt",
        misplaced="pass the lines on stdin: bertsmith tokenize --vocab vocab.txt < FILE",
    ),
    Command(text.inputs, "inputs", "bertsmith inputs --vocab vocab.txt 'Who was Jim Henson?' 'He was a puppeteer.'"),
    Command(
        corpus.corpus, "corpus", "bertsmith corpus my-text --vocab vocab.txt --out my-corpus", corpus.corpus_settings
    ),
    Command(corpus.check, "check", "bertsmith check my-corpus"),
    Command(pretraining.rates, "rates", "bertsmith rates my-corpus --rows 2000", pretraining.rates_settings),
    Command(
        pretraining.pretrain,
        "pretrain",
        "bertsmith pretrain my-corpus --size tiny --steps 12 --out my-run",
        pretraining.pretrain_settings,
        trains=True,
    ),
    Command(plan.plan, "plan", "bertsmith plan my-corpus --size tiny --passes 40", plan.plan_settings),
    Command(pretraining.report, "report", "bertsmith report my-run"),
    Command(
        inference.fill,
        "fill",
        "bertsmith fill --model my-run/model 'The man went to the [MASK] .'",
        misplaced="quote the text",
    ),
    Command(
        inference.next_sentence,
        "next",
        "bertsmith next --model my-pairs-run/model 'The man went to the store.' 'He bought milk.'",
    ),
    Command(
        inference.complete,
        "complete",
        "bertsmith complete --model my-gpt/model 'The man went to' --tokens 5",
        inference.complete_settings,
        not_run="it needs a language model; the page on language models runs it",
        misplaced="quote the text",
    ),
    Command(
        inference.perplexity,
        "perplexity",
        "bertsmith perplexity my-text/village.txt --model my-gpt/model",
        not_run="it needs a language model; the page on language models runs it",
    ),
    Command(
        translation.train_translation,
        "train-translation",
        "bertsmith train-translation my-numbers.tsv --pieces 60 --steps 12 --out my-translation",
        translation.train_settings,
        not_run="it needs pairs of texts; the page on language models runs it",
    ),
    Command(
        translation.translate,
        "translate",
        "echo '4 2' | bertsmith translate --model my-translation/model",
        translation.translate_settings,
        not_run="it needs a translation model; the page on language models runs it",
        misplaced="pass the lines on stdin: bertsmith translate --model DIR < FILE",
    ),
    Command(
        finetuning.finetune,
        "finetune",
        "bertsmith finetune --model my-run/model --task spam --seeds 1 --out my-spam-run",
        finetuning.finetune_settings,
        misplaced="pass the files with --train and --dev",
        trains=True,
    ),
    Command(
        adaptation.adapt,
        "adapt",
        "bertsmith adapt my-run/model my-text --steps 12 --out my-adapted-run",
        adaptation.adapt_settings,
        trains=True,
    ),
    Command(
        prediction.evaluate,
        "evaluate",
        "bertsmith evaluate --model my-spam-run/model --data my-mails.csv",
        prediction.evaluate_settings,
        misplaced="pass the file with --data",
    ),
    Command(
        prediction.quantize,
        "quantize",
        "bertsmith quantize --model my-spam-run/model --data my-mails.csv --limit 1",
        prediction.quantize_settings,
        misplaced="pass the file with --data",
    ),
    Command(
        prediction.predict,
        "predict",
        "echo 'Buy these pills' | bertsmith predict --model my-spam-run/model",
        prediction.predict_settings,
        misplaced="pass the lines on stdin: bertsmith predict --model DIR < FILE, or a table with --data FILE",
    ),
    Command(
        documents.ask,
        "ask",
        "bertsmith ask my-answer-run/model my-text/village.txt 'What was mended?' --top 3",
        not_run="it needs a model fine-tuned on questions; the page on fine-tuning runs it",
    ),
    Command(
        documents.rank,
        "rank",
        "bertsmith rank my-spam-run/model my-text/village.txt --label Spam --top 3",
        misplaced="give one file, or a folder of files",
    ),
    Command(
        distillation.distill,
        "distill",
        "bertsmith distill --teacher my-spam-run/model --train my-mails.csv --seeds 1 --out my-student",
        distillation.distill_settings,
        misplaced="pass the files with --train, --dev and --unlabelled",
        trains=True,
    ),
    Command(
        distillation.distill_corpus,
        "distill corpus",
        "bertsmith distill corpus my-corpus --teacher my-run/model --layers 1 --steps 5 --out my-small-run",
        distillation.corpus_settings,
        trains=True,
    ),
    Command(prediction.glue, "glue", "bertsmith glue my-cola.json my-mrpc.json"),
    Command(
        comparison.compare,
        "compare",
        "bertsmith compare --task spam --corpus my-text --systems one-hot,tf-idf,ppmi --seeds 1 --out my-comparison",
        comparison.compare_settings,
        misplaced="pass the labelled file with --task, and text with --corpus",
    ),
    Command(vectors.embed, "embed", "bertsmith embed my-text/village.txt --model my-run/model --out my-vectors.npy"),
    Command(
        vectors.features,
        "features",
        "bertsmith features my-text/village.txt --model my-run/model --layers sum-all --out my-words.parquet",
    ),
    Command(
        search.search,
        "search",
        "bertsmith search my-text/village.txt --model my-run/model --query 'the broken gate' --top 3",
        misplaced="pass the query with --query, and the passages as the only argument",
    ),
    Command(search.senses, "senses", "bertsmith senses letter my-text --model my-run/model --out my-senses.html"),
    Command(
        search.contexts,
        "contexts",
        "bertsmith contexts letter 'A sailor wanted the long letter.' 'The letter was an A.' --model my-run/model "
        "--text my-text",
        misplaced="quote each sentence",
    ),
    Command(vectors.vectors, "vectors", "bertsmith vectors my-vectors.npy --center --out my-centered-vectors.npy"),
    Command(vectors.static, "vectors static", "bertsmith vectors static --model my-run/model --out my-static-model"),
    Command(
        word_vectors.train,
        "vectors train",
        "bertsmith vectors train my-text --width 20 --minimum-count 2 --out my-word-vectors",
        word_vectors.train_settings,
    ),
    Command(
        word_vectors.convert,
        "vectors convert",
        "bertsmith vectors convert my-word-vectors --to binary --out my-word-vectors.bin",
    ),
    Command(
        word_vectors.neighbours,
        "vectors neighbours",
        "bertsmith vectors neighbours my-word-vectors gardener sailor --count 3",
    ),
    Command(
        word_vectors.analogy,
        "vectors analogy",
        "bertsmith vectors analogy my-word-vectors gardener gate sailor",
    ),
    Command(
        word_vectors.similarity,
        "vectors similarity",
        "bertsmith vectors similarity my-word-vectors gardener sailor",
    ),
    Command(
        word_vectors.opposites,
        "vectors opposites",
        "bertsmith vectors opposites my-word-vectors my-opposites.txt",
        not_run="it needs a list of pairs; the page on word vectors writes one",
    ),
    Command(word_vectors.show, "vectors show", "bertsmith vectors show my-word-vectors gardener"),
    Command(
        serve.serve,
        "serve",
        "bertsmith serve --model my-run/model --model my-spam-run/model",
        serve.serve_settings,
        not_run="it runs until it is stopped",
        misplaced="pass each model with --model",
    ),
    Command(
        convert.convert,
        "convert",
        "bertsmith convert my-run/model my-google-checkpoint --to google",
        convert.convert_settings,
    ),
    Command(convert.inspect, "inspect", "bertsmith inspect my-google-checkpoint --names"),
    Command(convert.models, "models", "bertsmith models"),
    Command(sizes.sizes, "sizes", "bertsmith sizes"),
)


class _Commands(TyperGroup):
    """The group of all commands, of which some have names of two words, such as `vectors train`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first words name, and the other arguments."""
        return super().resolve_command(ctx, _with_one_name(args, self.commands))


def _with_one_name(arguments: Sequence[str], names: Container[str]) -> list[str]:
    """The arguments with the first two joined if they are the name of a command.

    >>> _with_one_name(["vectors", "train", "my-text"], ["vectors", "vectors train"])
    ['vectors train', 'my-text']
    >>> _with_one_name(["vectors", "x.npy"], ["vectors", "vectors train"])
    ['vectors', 'x.npy']
    """
    joined = " ".join(arguments[:2])
    return [joined, *arguments[2:]] if len(arguments) > 1 and joined in names else list(arguments)


def application(chosen: str | None = None) -> typer.Typer:
    """The command-line application; only the command named `chosen` is sure to have the options from its settings."""
    application = typer.Typer(
        cls=_Commands,
        help="BERT from raw text to a served model: learn a vocabulary, build a corpus, pre-train, fine-tune, compute "
        "vectors, search, export and serve.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    for command in COMMANDS:
        function = with_settings(command.function, command.settings() if command.name == chosen else ())
        # The control character \b keeps the example from being wrapped.
        application.command(command.name, epilog=f"\b\nExample:\n  {command.example}")(function)

    @application.callback(invoke_without_command=True)
    def options(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            typer.echo(__version__)
            raise typer.Exit

    return application


READER_GONE = 141  # 128 and the number of SIGPIPE, as shells report it


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Limits how long the threads of torch spin while they wait for each other; a setting of the user is kept.

    The OpenMP runtime reads it when torch is imported. By default its threads spin for milliseconds at the end of every
    matrix product, which on a busy machine takes the processor from the thread they wait for (docs/decisions/0018).
    """
    if not any(name in environment for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")):
        environment["GOMP_SPINCOUNT"] = SPINS


def main() -> None:
    """Runs the command line of this process and exits with its code."""
    wait_briefly(os.environ)
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    chosen = next(iter(_with_one_name(given, [command.name for command in COMMANDS])), None)
    called = next((command for command in COMMANDS if command.name == chosen), None)
    try:
        for argument in sys.argv[1:]:
            require_host(argument.rpartition("=")[2])  # what is wrong with one cannot be seen in a `Path`
        require_one_process(chosen, [command.name for command in COMMANDS if command.trains])
        code = application(chosen)(prog_name="bertsmith", standalone_mode=False)
    except SystemExit:
        # What typer leaves behind when the reader of stdout has closed it, as in `| head -1`; its exit code is 1.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            sys.exit(READER_GONE)
        raise
    except BertsmithError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        # An installation for ONNX folders alone lacks torch, and much else that only training and reports need.
        package = (error.name or "").partition(".")[0]
        if package in ("", "bertsmith"):
            raise
        _fail(
            f"expected the package {package}, which this command needs here; found none; install everything that "
            "bertsmith needs (pip install bertsmith); without torch, it answers from ONNX folders"
        )
    except OSError as error:
        resumes = called is not None and "resume" in inspect.signature(called.function).parameters
        _fail(_system_error(error, resumes=resumes))
    except ValueError as error:
        # Python's error for a path with NUL, which a damaged file may name; any other one is a mistake of ours.
        if "embedded null" not in str(error):
            raise
        _fail("expected names of files without a NUL character; found one; restore the file that has it")
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(str(error), err=True)  # the help
            sys.exit(2)
        _fail(usage_line(error, called.example, called.misplaced) if called else usage_line(error), 2)
    sys.exit(code or 0)


def _system_error(error: OSError, *, resumes: bool) -> str:
    """One line about an error of the operating system, in a command that has --resume or not."""
    place = f"'{error.filename}'" if error.filename else "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        again = "the same command again" + (", with --resume if its output has begun" if resumes else "")
        return f"expected space on the disk; found none left for {place}; free some and run {again}"
    reason = error.strerror or str(error) or type(error).__name__
    return f"expected to read or write {place}; found: {reason}; check the path, its permissions and the disk"


def _fail(line: str, code: int = 1) -> NoReturn:
    sys.stdout.flush()
    note(line)
    sys.exit(code)
