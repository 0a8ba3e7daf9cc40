"""The settings of a task: how texts are truncated and answers decoded, and the columns of its files.

They are the options of several commands, whose help needs them; nothing here needs torch.
"""

import dataclasses

from bertsmith.base.core.settings import (
    help_field,
    require_known,
    require_limits,
    require_number,
    require_other,
    require_value,
)
from bertsmith.text.documents.encodings import UTF_8, require_encoding
from bertsmith.text.tokenizers.pack import TRUNCATIONS

HIERARCHICAL = {"hierarchical": "transformer", "hierarchical-bilstm": "bilstm"}  # what reads the windows
WINDOWED = ("windows", *HIERARCHICAL)
LONG_TEXTS = (*TRUNCATIONS, *WINDOWED)
# The settings of texts to write, which no other kind of task has.
OF_WRITING = (
    "max_target_length", "min_target_length", "beam", "length_penalty", "no_repeat_ngram", "answers", "label_smoothing",
    "copy",
)  # fmt: skip
# Those of sentences to choose; the second one is also among the others.
OF_EXTRACTS = ("sentences", "no_repeat_ngram", "sentence_layers")
# Those of entities that may share words.
OF_ENTITIES = ("entity_words", "overlap")
MOST_ENTITIES = 8  # of a sentence, for each of its words
USUAL_WORDS = 12  # of the longest entity of a label that is named later
ANY, NESTED, NONE, AUTO = OVERLAPS = ("any", "nested", "none", "auto")  # which entities may share words
VECTORS, CROSS_ENCODER = SCORERS = ("vectors", "cross-encoder")  # how candidates are scored
OF_RANKING = ("scorer",)  # the settings of tasks that rank candidates
CANDIDATES = 10  # of a row, with the right one
POOLINGS = ("mean", "max", "sum")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """How a task truncates texts and decodes answers; stored with the model and used everywhere."""

    max_length: int = help_field(128, "maximum tokens per row, including [CLS] and [SEP]", most=10**6)
    long_text: str = help_field(
        "longest_first",
        "how to treat texts that are too long: longest_first, halves (as transformers cuts pairs), head, tail, "
        "head_tail, windows (logits are pooled), "
        "hierarchical (a small Transformer over the vectors of all windows, trained with the model), "
        "hierarchical-bilstm (a BiLSTM instead) or error",
    )
    stride: int = help_field(128, "tokens from the start of one window to the next", most=10**6)
    pooling: str = help_field(
        "mean", "how the logits of a text's windows, or of both orders of a pair, are pooled: mean, max or sum"
    )
    both_orders: bool = help_field(
        False,
        "classification and regression of pairs: encode each pair in both orders and pool both "
        "scores, so that the order does not matter; with pooling sum, the output layer scores the "
        "sum of both states, as in GPT",
    )
    max_question: int = help_field(64, "maximum tokens of a question", most=10**6)
    max_answer: int = help_field(30, "maximum tokens of an answer", most=10**6)
    n_best: int = help_field(20, "number of candidate answers to keep", most=10_000)
    calibrate: bool = help_field(
        False, "classification: fit a temperature on the dev examples, for calibrated probabilities"
    )
    tune_threshold: bool = help_field(
        False,
        "binary and multi-label classification: tune the threshold on the probability of a label for the best metric "
        "on the dev examples; nested-ner: on that of an entity, for the best F1, unless --no-tune-threshold says "
        "otherwise",
    )
    label_thresholds: bool = help_field(
        False,
        "multi-label classification: tune a threshold for each label that 5 dev examples or more have, for the best "
        "micro F1 or, with --metric macro_f1, the best F1 of each label; the other labels share one",
    )
    document_context: bool = help_field(False, "tagging and nested-ner: fill each row with the neighboring sentences")
    query_prompt: str = help_field(
        "", "similarity, pairs, triplets: prompt before the first text of each example, and before queries in `search`"
    )
    passage_prompt: str = help_field(
        "", "similarity, pairs, triplets: prompt before the other texts, and before passages in `search`"
    )
    query_length: int = help_field(
        0,
        "--vectors tokens: as in ColBERT, cut queries (the first texts) to this many tokens and fill shorter ones up "
        "with [MASK], whose vectors are compared, too; without prompts, the pieces [unused0] and [unused1], if the "
        "vocabulary has them, mark queries and passages; 0: queries as they are",
        least=0,
        most=512,
    )
    max_target_length: int = help_field(64, "tasks that write text: maximum pieces of a text", most=10**5)
    min_target_length: int = help_field(0, "tasks that write text: minimum pieces of a text", most=10**5)
    beam: int = help_field(4, "tasks that write text: beam width; 1: greedy search", most=1000)
    length_penalty: float = help_field(
        1.0,
        "tasks that write text: the log probability is divided by ((5 + pieces) / 6) to this power; 0 prefers short "
        "texts",
    )
    no_repeat_ngram: int = help_field(
        0,
        "tasks that write text: no run of this many pieces occurs twice in a text; extractive summaries: no sentence "
        "with a run of this many words that one with a higher score has; 0: no limit",
        most=1000,
    )
    answers: int = help_field(
        1, "tasks that write text: number of texts for each source, at most the beam width", most=1000
    )
    label_smoothing: float = help_field(
        0.1,
        "tasks that write text: fraction of the target probability that is spread evenly over all pieces in training",
    )
    copy: bool = help_field(
        False,
        "tasks that write text: the model can copy pieces of the source (pointer-generator), so that it writes words "
        "that no training example has; new models of these tasks have it unless --no-copy says otherwise",
    )
    sentences: int = help_field(
        0, "extractive summaries: sentences to choose; 0: as many as the targets of the training examples usually have",
        most=10**4,
    )  # fmt: skip
    sentence_layers: int = help_field(
        2, "extractive summaries: Transformer layers over the sentences of a text, in front of their scores", most=100
    )
    scorer: str = help_field(
        VECTORS,
        "response-selection: how candidates are scored: vectors (context and reply are read apart, so that any number "
        "of replies is computed once) or cross-encoder (both together)",
    )
    constrained_tags: bool = help_field(
        True,
        "tagging: predict only sequences of tags that the scheme allows; otherwise the most likely tag of each word",
    )

    entity_words: int = help_field(
        0,
        "nested-ner: maximum words of an entity; 0: those of the longest one of the training examples; "
        f"entities-by-name: {USUAL_WORDS}",
        most=1000,
    )
    overlap: str = help_field(
        AUTO,
        "nested-ner and entities-by-name: which entities may share words: any, nested (of two, one is inside the "
        "other), none or auto (as in the training examples); of two that may not, the more probable one is predicted",
    )

    def __post_init__(self) -> None:
        require_limits(self)
        for name in (
            "max_length", "stride", "max_question", "max_answer", "n_best", "max_target_length", "beam", "answers"
        ):  # fmt: skip
            value = getattr(self, name)
            require_number(name, value, least=1)
        for name, known in (
            ("long_text", LONG_TEXTS),
            ("pooling", POOLINGS),
            ("scorer", SCORERS),
            ("overlap", OVERLAPS),
        ):
            value = getattr(self, name)
            require_known(name, value, known)
        for name in (
            "min_target_length",
            "no_repeat_ngram",
            "length_penalty",
            "sentences",
            "sentence_layers",
            "entity_words",
        ):
            require_number(name, getattr(self, name), least=0)
        require_number("label_smoothing", self.label_smoothing, least=0, below=1)
        require_number("min_target_length", self.min_target_length, most=self.max_target_length)
        require_value(
            self.answers <= self.beam, "answers", f"at most {self.beam}, the beam width", self.answers, "widen it"
        )
        require_other(
            self.pooling != "sum" or (self.both_orders and self.long_text != "windows"),
            "--pooling sum",
            "--both-orders and rows without windows",
            "use --pooling mean, or change the others",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """How a model that writes or chooses texts does so, in place of what was stored with it; None keeps that."""

    beam: int | None = help_field(
        None, "models that write text: beam width; 1: greedy search [the model's]", least=1, most=1000
    )
    answers: int | None = help_field(
        None, "models that write text: texts for each source, at most the beam width [the model's]", least=1, most=1000
    )
    length_penalty: float | None = help_field(
        None,
        "models that write text: the log probability is divided by ((5 + pieces) / 6) to this power [the model's]",
        least=0,
        most=1000,
    )
    no_repeat_ngram: int | None = help_field(
        None,
        "models that write text: no run of this many pieces occurs twice; extractive summaries: the same for words of "
        "two sentences; 0: no limit [the model's]",
        least=0,
        most=1000,
    )
    min_target_length: int | None = help_field(
        None, "models that write text: minimum pieces of a text [the model's]", least=0, most=10**5
    )
    max_target_length: int | None = help_field(
        None, "models that write text: maximum pieces of a text [the model's]", least=1, most=10**5
    )
    sentences: int | None = help_field(
        None, "extractive summaries: sentences to choose [the model's]", least=1, most=10**4
    )

    def __post_init__(self) -> None:
        require_limits(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSettings:
    """How dev examples are split off a training file."""

    group_column: str | None = help_field(
        None,
        "column of a group, such as an author or a patient: the dev examples that are split off the training file are "
        "those of whole groups",
        metavar="NAME",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSettings:
    """The columns that hold the parts of an example, for tasks without a fixed format, and the rows that are read."""

    text_column: str | None = help_field(None, "column of the text [detected by name]")
    pair_column: str | None = help_field(None, "column of the second text, for pairs [detected by name]")
    label_column: str | None = help_field(None, "column of the label [detected by name]")
    skip_unlabelled: bool = help_field(False, "skip rows without a label")
    word_column: int = help_field(0, "tagging: column of the word, from 0; -1 is the last")
    tag_column: int = help_field(-1, "tagging: column of the tag, from 0; -1 is the last")
    hierarchy: str | None = help_field(
        None,
        "multi-label and patents: hierarchy of the labels: a file with a label, a tab and its parent "
        "on each line, or cpc (the codes contain their parents). Parents are trained and predicted "
        "with their labels",
        path=True,
    )
    candidates: int = help_field(
        CANDIDATES,
        "response-selection: candidates of each row, drawn from the file, if it has no such column",
        least=2,
        most=10_000,
    )
    language: str | None = help_field(None, "xnli: read only the rows of this language, such as de [all]")
    encoding: str = help_field(
        UTF_8,
        "encoding of text files, such as cp1252; a byte order mark of UTF-8, UTF-16 or UTF-32 in a file takes "
        "precedence",
    )

    def __post_init__(self) -> None:
        require_encoding(self.encoding)
