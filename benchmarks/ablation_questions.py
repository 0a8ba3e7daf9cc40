"""The models, arms and questions of the ablations, and which arms do which task."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from ablation_arms import TOKENS_PER_STEP, Arm, CountedWords, EachSeed
from ablation_material import FROM_TEXT
from ablation_probes import Likeliest, MostFrequentSense, NearestSense

from bertsmith.recipes.comparison.networks import Untrained
from bertsmith.recipes.comparison.sources import Source
from bertsmith.recipes.comparison.systems import FineTuned, FrozenMean, System

EPOCHS = {"epochs": 2.0}  # of fine-tuning, in all arms; the recipe would take 3.56 for 1,000 examples
LONGER = {"epochs": 8.0}  # with a BiLSTM on top, which still answers all examples alike after two
READER = {"reads": "bilstm", "freeze": "nothing", "bilstm_cells": 64}
BILSTM = {**LONGER, **READER}
# Tasks in which all arms train for as many epochs as the recipe chooses; for answers it is EPOCHS in all arms.
BY_RECIPE = ("pos", "chunks", "entities", "sentence-order", "response")
# What answers a task without any training of the network on labels.
PROBED: dict[str, Callable[..., System]] = {"senses": NearestSense, "gaps": Likeliest, "blimp": Likeliest}
PRETRAININGS = 3


def _shares(masked: float, kept: float, replaced: float) -> tuple[tuple[str, float], ...]:
    return (("mask_share", masked), ("keep_share", kept), ("random_share", replaced))


# At 1,400 tokens a step the loss of eight layers 512 wide rises again, before half a million tokens.
LARGER_STEPS = (("tokens_per_step", 4 * TOKENS_PER_STEP),)
WHOLE_ROWS = (("contiguous", True),)  # as GPT reads books: rows continue past the ends of sentences
MLM, BOTH = Arm(name="mlm"), Arm(name="mlm+nsp", objective="mlm+nsp")
CAUSAL = Arm(name="left-to-right", objective="left-to-right")
MODELS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        BOTH,
        MLM,
        CAUSAL,
        Arm(name="sinusoidal", changes=(("positions", "sinusoidal"),)),
        Arm(name="no-positions", changes=(("positions", "none"),)),
        Arm(name="mlm+sop", objective="mlm+sop"),
        Arm(name="narrow", shape=(2, 64)),
        Arm(name="deep", shape=(4, 128)),
        Arm(name="2x64", shape=(2, 64), changes=LARGER_STEPS),
        Arm(name="2x128", shape=(2, 128), changes=LARGER_STEPS),
        Arm(name="4x256", shape=(4, 256), changes=LARGER_STEPS),
        Arm(name="6x384", shape=(6, 384), changes=LARGER_STEPS),
        Arm(name="8x512", shape=(8, 512), changes=LARGER_STEPS),
        Arm(name="masks-only", changes=_shares(1.0, 0.0, 0.0)),
        Arm(name="none-kept", changes=_shares(0.8, 0.0, 0.2)),
        Arm(name="none-replaced", changes=_shares(0.8, 0.2, 0.0)),
        Arm(name="no-masks", changes=_shares(0.0, 0.0, 1.0)),
        Arm(name="shuffled", objective="mlm+nsp", text="shuffled"),
        Arm(name="left-to-right-books", objective="left-to-right", changes=WHOLE_ROWS),
        Arm(name="left-to-right-shuffled", objective="left-to-right", changes=WHOLE_ROWS, text="shuffled"),
        *(Arm(name=f"{arm.name}-quarter", objective=arm.objective, share=0.25) for arm in (BOTH, MLM, CAUSAL)),
    )
}
SIZES = ("2x64", "2x128", "4x256", "6x384", "8x512")
ONCE = ("narrow", "deep", *SIZES)  # pre-trained once: the larger ones take hours


def _tuned(about: str, source: Source) -> FineTuned:
    return FineTuned(about=about, source=source, settings=EPOCHS)


def _pretrained(name: str) -> EachSeed:
    return EachSeed(like=MODELS[name], times=1 if name in ONCE else PRETRAININGS)


MOST_FREQUENT = "most-frequent"
LEFT_ONLY, WHOLE = "left-to-right left-only", "mlm whole-sentence"
FROZEN = "mean of frozen vectors, a linear model on top"
ARMS: dict[str, System] = {
    **{name: _tuned(f"pre-trained: {name}", _pretrained(name)) for name in MODELS},
    "left-to-right-longer": FineTuned(
        about="fine-tuned for as long as the next", source=_pretrained("left-to-right"), settings=LONGER
    ),
    "left-to-right+bilstm": FineTuned(
        about="a BiLSTM on top, trained with the rest", source=_pretrained("left-to-right"), settings=BILSTM
    ),
    LEFT_ONLY: Likeliest(about="the left side alone", source=_pretrained("left-to-right"), left_only=True),
    WHOLE: Likeliest(about="all words of the sentence", source=_pretrained("mlm"), whole=True),
    MOST_FREQUENT: MostFrequentSense(about="the most frequent sense of the word"),
    "untrained": _tuned("random parameters", Untrained(like=MLM)),
    "word-vectors": _tuned("random parameters, word vectors from counting", CountedWords(like=MLM)),
    "mlm frozen": FrozenMean(about=FROZEN, source=_pretrained("mlm")),
    "left-to-right frozen": FrozenMean(about=FROZEN, source=_pretrained("left-to-right")),
    "untrained frozen": FrozenMean(about=FROZEN, source=Untrained(like=MLM)),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is compared.

    Attributes:
        title: the question in words.
        arms: names of ARMS; the first is what the others are tested against.
        tasks: names of TASKS.
        without_data: those without files of labels.
    """

    title: str
    arms: Sequence[str]
    tasks: Sequence[str]
    without_data: Sequence[str] = FROM_TEXT


DIRECTIONS = ("gaps", "senses", "pos", "chunks", "blimp", "entities", "squad")  # those that take seconds first
PAIRS = ("next-sentence", "sentence-order", "qnli", "response")
QUESTIONS: dict[str, Question] = {
    "directions": Question(
        title="both sides of a word, or the left side",
        arms=("mlm", "left-to-right", LEFT_ONLY, WHOLE, "untrained", MOST_FREQUENT),
        tasks=DIRECTIONS,
        without_data=("gaps",),
    ),
    "pairs": Question(
        title="next sentence and sentence order, for pairs",
        arms=("mlm", "mlm+nsp", "mlm+sop", "untrained"),
        tasks=PAIRS,
        without_data=("next-sentence", "sentence-order"),
    ),
    "readers": Question(
        title="a BiLSTM on a left-to-right model, for words",
        arms=("left-to-right", "left-to-right+bilstm", "mlm"),
        tasks=("pos", "chunks", "entities", "squad"),
        without_data=(),
    ),
    "replacement": Question(
        title="what a masked piece is replaced by",
        arms=("mlm", "masks-only", "none-kept", "none-replaced", "no-masks"),
        tasks=("entities", "pos", "nli"),
        without_data=("word-order",),
    ),
    "sizes": Question(
        title="five sizes at equal tokens",
        arms=SIZES,
        tasks=("senses", "pos", "trec"),
        without_data=("word-order",),
    ),
    "tasks": Question(
        title="the objective",
        arms=("mlm+nsp", "mlm", "left-to-right"),
        tasks=("mrpc", "sst-2", "trec", "nli"),
    ),
    "positions": Question(
        title="positions",
        arms=("mlm", "sinusoidal", "no-positions"),
        tasks=("word-order", "topic", "cola", "sst-2", "trec"),
    ),
    "words": Question(
        title="word vectors as all that was learned", arms=("word-vectors", "untrained", "mlm"), tasks=("sst-2", "trec")
    ),
    "size": Question(title="size at equal tokens", arms=("mlm", "narrow", "deep"), tasks=("sst-2", "trec")),
    "books": Question(title="sentences in order", arms=("mlm+nsp", "shuffled"), tasks=("next-sentence", "nli")),
    "stretches": Question(
        title="sentences in order, read from left to right",
        arms=("left-to-right-books", "left-to-right-shuffled"),
        tasks=("next-sentence", "nli"),
    ),
    "features": Question(
        title="frozen features",
        arms=("mlm", "mlm frozen", "left-to-right", "left-to-right frozen", "untrained", "untrained frozen"),
        tasks=("sst-2", "trec"),
    ),
    "tokens": Question(
        title="the objective at a quarter of the tokens",
        arms=("mlm+nsp-quarter", "mlm-quarter", "left-to-right-quarter"),
        tasks=("sst-2", "trec"),
    ),
    "bilstm": Question(
        title="a BiLSTM on a left-to-right model",
        arms=("left-to-right-longer", "left-to-right+bilstm"),
        tasks=("sst-2", "mrpc", "trec", "nli"),
    ),
    "answers": Question(
        title="the objective, for answers in a text", arms=("mlm", "left-to-right", "untrained"), tasks=("squad",)
    ),
}
INTERMEDIATE, INTERMEDIATE_OF = "intermediate", ("mlm+nsp",)
# In this order, as far as time allows.
ORDER = (
    "directions",
    "pairs",
    "readers",
    "tasks",
    "positions",
    "words",
    INTERMEDIATE,
    "size",
    "books",
    "stretches",
    "features",
    "tokens",
    "bilstm",
    "answers",
    "replacement",
    "sizes",
)


def tasks_of(question: str, data: Path | None) -> Sequence[str]:
    """The tasks of a question; without data, those that are made from text."""
    return QUESTIONS[question].tasks if data is not None else QUESTIONS[question].without_data


def arms_of(question: str, task: str) -> dict[str, System]:
    """The arms of a question that can do a task, with the settings of that task."""
    arms = {name: _for_task(ARMS[name], task) for name in QUESTIONS[question].arms}
    return {name: arm for name, arm in arms.items() if arm is not None}


def _for_task(arm: System, task: str) -> System | None:
    """The arm as it does a task; None if it cannot.

    What is fine-tuned elsewhere is probed in tasks of PROBED; likelihoods need a network that was pre-trained.
    """
    if isinstance(arm, MostFrequentSense):
        return arm if task == "senses" else None
    if isinstance(arm, Likeliest):
        return arm if task == "gaps" else None
    if not isinstance(arm, FineTuned):
        return None if task in PROBED else arm
    if task in PROBED:
        is_pretrained, is_plain = isinstance(arm.source, EachSeed), "reads" not in arm.settings
        probed = PROBED[task](about=arm.about, source=arm.source)
        return probed if is_plain and (is_pretrained or isinstance(probed, NearestSense)) else None
    if task in (*BY_RECIPE, "squad"):
        others = {key: value for key, value in arm.settings.items() if key != "epochs"}
        return dataclasses.replace(arm, settings=others if task in BY_RECIPE else {**others, **EPOCHS})
    return arm
