"""What `--help` and `--help-all` show: commands in groups, the options that people use first, all others by topic."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from bertsmith.base.core.progress import warn

# Every command, in the groups of the help; a mark follows those that a person needs first.
GROUPS: Mapping[str, str] = {
    "Start here": "demo*",
    "Text": "vocab*, corpus*, tokenize, inputs, check, rates, codes build, codes cluster, codes assign",
    "Train": "pretrain*, finetune*, distill, distill corpus, adapt, plan, settings, report, train-translation, "
    "memory train, codes train, codes train-video",
    "Use": "predict*, classify, embed*, search*, index, index remove, index compact, index join, index export, fill*, "
    "ask*, serve*, next, complete, perplexity, translate, rank, features, senses, contexts, disambiguate, gloss-pairs, "
    "memory answer, codes predict, codes anomalies, codes embed, codes fill, codes match, codes next, codes features",
    "Compare": "evaluate*, compare*, audit, upgrade, drift, glue, quantize",
    "Word vectors": "vectors, vectors static, vectors train, vectors convert, vectors neighbours, vectors analogy, "
    "vectors similarity, vectors opposites, vectors show",
    "Models": "inspect*, convert*, push, models, sizes, doctor",
}
# The options that the short help shows; without an entry, all.
COMMON: Mapping[str, str] = {
    "corpus": "out vocab model held-out remove-duplicates form encoding workers replace resume",
    "rates": "rows objective max-length masked-share whole-word seed",
    "pretrain": "out size minutes steps init objective max-length rows-per-step learning-rate seed device resume",
    "plan": "passes size minutes steps objective max-length rows-per-step device json",
    "train-translation": "out dev size minutes steps learning-rate seed device resume",
    "memory train": "out dev hops width facts support-weight starts epochs minutes steps learning-rate seed device "
    "resume",
    "codes build": "out tree minimum-count by-day replace",
    "codes predict": "model top threshold device json",
    "codes anomalies": "model top device json",
    "codes embed": "model out device replace",
    "codes train": "out given wanted tree width dropout pretrain-on pretraining-epochs epochs rounds minutes steps "
    "learning-rate seed device resume",
    "codes train-video": "out init events words dev subsample join epochs minutes steps learning-rate seed device "
    "resume",
    "finetune": "model task out train dev text-column label-column epochs batch-size max-length seeds recipe "
    "search map device resume",
    "adapt": "out task train dev minutes steps check from-scratch seeds resume json",
    "evaluate": "model data task map text-column label-column encoding also device precision json",
    "predict": "model data text-column encoding out also engine device precision json replace",
    "classify": "labels model also multi-label threshold calibrate text-column out encoding device json replace",
    "distill": "teacher student out train dev unlabelled epochs seeds without-teacher device resume",
    "distill corpus": "teacher method student layers out minutes steps max-length device resume",
    "audit": "task model run fix out next unlabelled dev folds text-column label-column group-column near device json",
    "drift": "model out text-column device json",
    "upgrade": "on out most passages index text-column label-column device json",
    "compare": "task train dev corpus systems minutes labels seeds out device resume",
    "features": "model out layers column device precision json resume replace",
    "vocab": "out size cased rules method column report encoding bad-bytes replace",
    "embed": "model out pooling normalize layers max-length column encoding device precision json resume replace",
    "index": "model out add resume recall text-column",
    "search": "model query queries top method rerank hybrid index text-column encoding judgements json",
    "vectors train": "out method width window epochs minimum-count seed resume replace",
    "serve": "model host port api-key-file replace on most device precision products max-held",
    "convert": "to int8 data task limit verify replace",
}
# The topic of the options that a settings class adds.
TOPICS: Mapping[str, str] = {
    "AnswerSettings": "Texts to write or choose",
    "EntitySettings": "Entities",
    "ColumnSettings": "Columns and files",
    "SplitSettings": "Columns and files",
    "TaskSettings": "Rows and predictions",
    "FinetuningSettings": "Model and head",
    "RecipeSettings": "Optimization",
    "TrainSettings": "Optimization",
    "PretrainingRunSettings": "Model and run",
    "PretrainingDataSettings": "Rows and masks",
    "DistillationSettings": "Distillation",
    "CorpusDistillationSettings": "Distillation",
    "AdaptationSettings": "Adaptation",
    "ChangeSettings": "Correction",
    "ReadingSettings": "Reading text",
    "EncodingSettings": "Reading text",
    "LanguageSettings": "Languages",
    "CorpusSettings": "Documents and shards",
    "SamplingSettings": "Sampling",
    "PlanSettings": "Plan",
    "TranslationSettings": "Model and data",
    "MemorySettings": "Model and data",
    "VideoSettings": "Rows and masks",
    "EventSettings": "Columns and files",
    "CodesSettings": "Model and data",
    "SearchSettings": "Beam search",
    "WordVectorSettings": "Training",
    "ServerSettings": "Limits",
}
ALL = "--help-all"


def grouped(names: str) -> list[tuple[str, bool]]:
    """The commands of a group, each with whether it is one that a person needs first.

    >>> grouped("vocab*, distill corpus")
    [('vocab', True), ('distill corpus', False)]
    """
    return [(name.rstrip("*"), name.endswith("*")) for name in names.split(", ")]


def first_sentence(text: str) -> str:
    """The first sentence of a help text, without its line breaks.

    >>> first_sentence("Learn a vocabulary, such as that of BERT. It is sorted.")
    'Learn a vocabulary, such as that of BERT.'
    """
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).partition(". ")[0].rstrip(".") + "."


class ShortHelpCommand(TyperCommand):
    """A command whose help shows its common options."""

    shows_all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; warns of an option with one value that is given several times."""
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in dict.fromkeys(order):
            count = order.count(parameter)
            if count > 1 and not (parameter.multiple or getattr(parameter, "is_flag", False)):
                warn(f"{max(parameter.opts, key=len)} is given {count} times; only the last value is used")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options."""
        common = COMMON.get(str(self.name), "").split()
        arguments, topics = [], dict[str, list[tuple[str, str]]]()
        hidden = 0
        parameters = self.get_params(ctx)
        if common and not self.shows_all:  # in the order of the list, required ones first
            parameters.sort(key=lambda each: (not each.required, [name not in _names(each) for name in common]))
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(record)
            elif self.shows_all or not common or _names(parameter) & set(common) or parameter.name == "help":
                topic = getattr(parameter, "rich_help_panel", None) if self.shows_all else None
                topics.setdefault(topic or "Options", []).append(record)
            else:
                hidden += 1
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        if hidden:
            topics["Options"].append((ALL, f"Show all options by topic, {hidden} more, and exit."))
        for topic, records in topics.items():
            with formatter.section(topic):
                formatter.write_dl(records)


class FullHelpCommand(ShortHelpCommand):
    """A command whose help shows every option by topic."""

    shows_all = True


class SubCommands(TyperGroup):
    """The commands whose names begin with the same word, such as `codes build`, if the word is not itself a command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands, each with its first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_sentence(each.help or "")) for name, each in self.commands.items()])


class Commands(TyperGroup):
    """The group of all commands, of which some have names of two words, such as `vectors train`."""

    shows_all = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first words name, and the other arguments; of `codes` alone, its sub-commands."""
        word, *rest = args = with_one_name(args, self.commands)
        names = [name for listed in GROUPS.values() for name, _ in grouped(listed) if name.startswith(f"{word} ")]
        parts = {name.removeprefix(f"{word} "): self.commands[name] for name in names}
        if word in self.commands or not parts:
            return super().resolve_command(ctx, args)
        group = SubCommands(
            name=word,
            commands=parts,
            help=f"Commands whose names begin with {word}; bertsmith {word} COMMAND --help explains each.",
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        return word, group, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands in groups, each with its first sentence."""
        for group, names in GROUPS.items():
            rows = [
                (name, first_sentence(self.commands[name].help or ""))
                for name, is_first in grouped(names)
                if is_first or self.shows_all
            ]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)
        if not self.shows_all:
            formatter.write_paragraph()
            formatter.write_text(
                "Your own labels: bertsmith finetune --model starter --task classification --train FILE.csv --out RUN"
            )
            formatter.write_text(
                f"bertsmith {ALL} lists all {len(self.commands)} commands; bertsmith COMMAND --help explains one."
            )


class AllCommands(Commands):
    """The group, with a help that lists every command."""

    shows_all = True


def with_one_name(arguments: Sequence[str], names: Container[str]) -> list[str]:
    """The arguments with the first two joined if they are the name of a command.

    >>> with_one_name(["vectors", "train", "my-text"], ["vectors", "vectors train"])
    ['vectors train', 'my-text']
    >>> with_one_name(["vectors", "x.npy"], ["vectors", "vectors train"])
    ['vectors', 'x.npy']
    """
    joined = " ".join(arguments[:2])
    return [joined, *arguments[2:]] if len(arguments) > 1 and joined in names else list(arguments)


def without_all(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments with `--help` in place of `--help-all`, and whether that was there; not after `--`.

    >>> without_all(["fill", "--help-all"]), without_all(["fill", "--", "--help-all"])
    ((['fill', '--help'], True), (['fill', '--', '--help-all'], False))
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = ["--help" if argument == ALL else argument for argument in arguments[:end]]
    return [*options, *arguments[end:]], ALL in arguments[:end]


def _names(parameter: Any) -> set[str]:
    return {option.lstrip("-") for option in parameter.opts}
