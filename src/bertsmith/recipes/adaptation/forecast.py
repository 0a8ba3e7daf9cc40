"""The forecast of an adaptation: whether the text is long enough, whether the vocabulary fits, how long it takes.

The time is that of a few steps of this model on this machine, as `pretrain` would take them, forward passes and all;
nothing is trained yet.
"""

import dataclasses
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import amount, counted, duration
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.recipes.adaptation.domain_text import DomainText
from bertsmith.recipes.adaptation.settings import ENOUGH_WORDS, FEW_TOKENS, GRAFT, KEEP, NEW, AdaptationSettings
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import CONTINUATION
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.report import TextFigures, vocabulary_report
from bertsmith.text.vocabularies.word_counts import WordCounts
from bertsmith.training.planning.gains import NEW_MODEL, expected_gain
from bertsmith.training.pretraining.fit import FEW_HELD_OUT

LEAST_WORDS = 2_000
WORDS_PER_PIECE = 20  # of a new vocabulary, below which most of its pieces are too rare to be learned
UNKNOWN_SHARE = 0.01  # of the words, above which the vocabulary does not fit
NAMED_CHARACTERS = 10  # in the advice
WHOLE_SHARE = 0.5  # of the words, below which the text is probably in another language
MOST_PASSES = 100  # over the text of a task in Gururangan et al. (2020), "Don't stop pretraining", section 4
_WAYS = {
    KEEP: "the pre-training of the model continues with its own",
    GRAFT: "that of the model with words of the text added",
    NEW: "a new model of the same shape is trained with one of the text",
}
_ROWS, _TIMED = 8, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is known before anything is trained."""

    model: str  # its name
    documents: int
    words: int  # basic tokens of the text
    before: TextFigures  # how the vocabulary of the model splits the held-out text
    after: TextFigures  # how that of the adapted model splits it
    added: int
    tokens_per_second: float  # of training, measured on a few rows
    settings: AdaptationSettings  # those of the adaptation, with the way that was chosen
    # why words are unknown to the vocabulary of the model: characters that are not pieces, with their counts in these
    # words, most frequent first
    unknown_characters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # tokens of the pre-training of the model; None if unknown, as in a model of another tool
    tokens_read: int | None = None
    is_chosen: bool = False  # whether the way was chosen by `AUTO`
    from_scratch: bool = False  # whether a new model is trained in any case, as an arm of its own
    # whether the pieces of the model are WordPieces, so that there are other ways than `KEEP`
    is_wordpiece: bool = True
    notes: tuple[str, ...] = ()  # what the model lacks, a sentence each

    @property
    def has_read_little(self) -> bool:
        """Whether the pre-training of the model was so short that a new model is likely to be the better start."""
        return self.is_wordpiece and self.tokens_read is not None and self.tokens_read < FEW_TOKENS

    @property
    def pass_seconds(self) -> float:
        """The seconds of one pass over the text."""
        return self.words * self.after.pieces_per_word / self.tokens_per_second

    @property
    def passes(self) -> float | None:
        """How often the minutes read the text; None for a budget in steps."""
        minutes = self.settings.budget.get("minutes")
        return None if minutes is None else 60 * minutes / self.pass_seconds

    @property
    def gain(self) -> str | None:
        """Whether an adaptation to that much text is worth it for a task of its domain; None if it was not measured."""
        return expected_gain(NEW_MODEL if self.settings.vocabulary == NEW else self.model, self.words)

    def lines(self) -> list[str]:
        """The text, the vocabulary and the time, one line each, and advice where something is wrong."""
        passes = "" if self.passes is None else f"; {self.settings.budget['minutes']:g} minutes read it "
        passes += "" if self.passes is None else f"{amount(self.passes)} times"
        added = f" (with {counted(self.added, 'added word')})" if self.settings.vocabulary == GRAFT else ""
        return [
            f"text: {counted(self.documents, 'document')}, {amount(self.words)} words",
            f"vocabulary on held-out text: {_in_words(self.before)}"
            + ("" if self.after is self.before else f"; afterwards {_in_words(self.after)}{added}"),
            f"a pass over the text takes about {duration(self.pass_seconds)} on this machine "
            f"({amount(self.tokens_per_second)} tokens/s){passes}",
            *([f"gain: {self.gain}"] if self.gain else []),
            *self._choice(),
            *(f"note: {note}" for note in self.notes),
            *(f"advice: {line}" for line in self.advice()),
        ]

    def advice(self) -> list[str]:
        """What should be changed before training, one line per problem; empty if there is none."""
        return [line for is_wrong, line in self._checks() if is_wrong]

    def _choice(self) -> Iterator[str]:
        """The line on the way that is taken, with the reason if a new model is trained although none was requested."""
        if self.is_chosen and self.settings.vocabulary == NEW:
            yield (
                f"choice: a new model of the domain, because the model has read only {amount(self.tokens_read or 0)} "
                "tokens; to continue its pre-training instead: `bertsmith adapt MODEL TEXT --vocabulary keep --out RUN`"
            )
        else:
            yield f"vocabulary: {self.settings.vocabulary}, {_WAYS[self.settings.vocabulary]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {"documents": self.documents, "words": self.words, "added": self.added}
        values |= {"tokens_read": self.tokens_read, "vocabulary": self.settings.vocabulary}
        return {
            **values,
            "pass_seconds": round(self.pass_seconds, 1),
            "passes": None if self.passes is None else round(self.passes, 2),
            "gain": self.gain,
            "notes": list(self.notes),
            "advice": self.advice(),
        }

    def _checks(self) -> Iterator[tuple[bool, str]]:
        before, kind = self.before, self.settings.vocabulary
        has_new = kind == NEW or self.from_scratch
        read = f"the model has read only {amount(self.tokens_read or 0)} tokens"
        command = "`bertsmith adapt MODEL TEXT --vocabulary new --out RUN`"
        yield before.unknown_rate > UNKNOWN_SHARE, self._of_unknown(may_be_new=self.is_wordpiece and not has_new)
        yield (
            self.is_wordpiece and before.unknown_rate <= UNKNOWN_SHARE and before.whole_rate < WHOLE_SHARE,
            f"only {before.whole_rate:.0%} of the words are pieces of the vocabulary of the model: the text is "
            "probably in another language than that of the model. Check the text, or use a model of its language",
        )
        yield (
            self.has_read_little and not has_new and self.words >= ENOUGH_WORDS,
            f"{read}, and a new model of the domain was the better start for a task after so little pre-training: "
            f"{command}",
        )
        yield (
            self.has_read_little and not has_new and self.words < ENOUGH_WORDS,
            f"{read}; give at least {ENOUGH_WORDS:,} words of text and train a new model of the domain, which was the "
            f"better start for a task after so little pre-training: {command}",
        )
        yield (
            self.passes is not None and self.passes > MOST_PASSES,
            f"the minutes would read the text {self.passes or 0:.0f} times, more than the {MOST_PASSES} passes of "
            "published recipes; give more text or fewer minutes",
        )
        yield (
            kind == NEW and not self.has_read_little and self.passes is not None and self.passes < 1,
            "a new model is trained from nothing, and the minutes do not even read the text once; give more minutes, "
            "or continue from the model with --vocabulary keep or graft",
        )
        yield (
            kind == GRAFT and self.added < self.settings.add,
            f"of the words of the text that are split, only {self.added:,} are frequent enough to be added",
        )
        held_out = self.after.pieces
        yield (
            held_out < FEW_HELD_OUT,
            f"the held-out text has {counted(held_out, 'token')}, too few for losses that mean something; give more "
            "text or raise --held-out",
        )

    def _of_unknown(self, *, may_be_new: bool) -> str:
        """The advice for a text with characters that the vocabulary of the model lacks."""
        problem, counts = f"{self.before.unknown_rate:.1%} of the words are unknown to the vocabulary of the model", ""
        if self.unknown_characters:
            named = list(self.unknown_characters.items())
            counts = " ".join(f"{character} ({count:,})" for character, count in named[:NAMED_CHARACTERS])
            counts += f" and {len(named) - NAMED_CHARACTERS} more" if len(named) > NAMED_CHARACTERS else ""
        if self.is_wordpiece and not counts:
            return f"{problem}: they are longer than its tokenizer reads. Check that the text consists of words"
        letters = sum(count for character, count in self.unknown_characters.items() if _is_letter(character))
        if not counts or 2 * letters > sum(self.unknown_characters.values()):
            fix = "Use a model of this language" + (", or --vocabulary new if there is much text" * may_be_new)
            return f"{problem}: the text has letters that it lacks{': ' * bool(counts)}{counts}. {fix}"
        if self.settings.vocabulary == GRAFT:
            fix = "Those that are frequent enough are among the added words"
        else:
            fix = "--vocabulary graft adds the frequent ones" + ", and so does a new one, with much text" * may_be_new
        return f"{problem}, because of signs that it lacks: {counts}. {fix}"


def require_enough(text: DomainText, settings: AdaptationSettings) -> None:
    """Refuses text that is too short to learn or to measure anything."""
    least = LEAST_WORDS
    if settings.vocabulary == NEW and settings.pieces is not None:
        least = max(least, WORDS_PER_PIECE * settings.pieces)
    if text.words < least:
        more = " or lower --pieces" if least > LEAST_WORDS else ""
        raise InputError(
            expected=f"text of the domain with at least {least:,} words",
            found=f"{counted(text.words, 'word')} in {counted(text.documents, 'document')}",
            fix=f"give more text{more}",
        )
    if not text.held_out:
        raise InputError(
            expected="text of the domain with something to hold out",
            found="a single sentence",
            fix="put sentences on lines of their own, or end them with a full stop",
        )


def figures_of(tokenizer: Tokenizer, words: WordCounts, name: str) -> TextFigures:
    """How the vocabulary of a tokenizer splits words."""
    longest, other = tokenizer.rules.max_word_characters, None if is_wordpiece(tokenizer) else tokenizer
    return vocabulary_report(tokenizer.vocabulary, {}, total=words, max_word_characters=longest, tokenizer=other).total


def unknown_characters(tokenizer: Tokenizer, words: WordCounts) -> dict[str, int]:
    """The characters that make words unknown to WordPieces, with their counts in these words, most frequent first."""
    if not is_wordpiece(tokenizer):
        return {}
    vocabulary, longest = tokenizer.vocabulary, tokenizer.rules.max_word_characters
    encoded = tokenizer.encode_words(words.words)
    is_unknown = (encoded.lengths == 1) & (encoded.ids[encoded.offsets[:-1]] == vocabulary.unk_id)
    unknown_words = ((words.words[index], int(words.counts[index])) for index in np.flatnonzero(is_unknown).tolist())
    unknown = {word: count for word, count in unknown_words if len(word) <= longest}
    missing = vocabulary_report(vocabulary, {}, total=WordCounts.of(unknown), max_word_characters=longest)
    counts: Counter[str] = Counter()
    for form, count in missing.missing_characters.items():
        counts[form.removeprefix(CONTINUATION) or form] += count
    return dict(counts.most_common())


def is_wordpiece(tokenizer: Tokenizer) -> bool:
    """Whether the pieces are WordPieces, which can be learned here and extended by words."""
    return isinstance(tokenizer, WordPieceTokenizer)


def training_speed(model: EncoderForPreTraining, length: int, runtime: Runtime) -> float:
    """Tokens per second of training with rows of `length` tokens, from a few forward and backward passes."""
    model = model.to(runtime.torch_device).train()
    tokens = np.full(_ROWS * length, 5 % model.config.vocab_size, dtype=np.int32)
    batch = Batch.from_flat(tokens, np.zeros_like(tokens), np.full(_ROWS, length, dtype=np.int64), None, runtime.device)
    masked = torch.arange(0, len(tokens), 7, device=runtime.torch_device)
    read = Read.at(batch, masked.cpu().numpy())
    seconds = []
    for _ in range(1 + _TIMED):
        start = time.monotonic()
        logits = model(batch, read=read, masked=torch.arange(len(masked)), dtype=runtime.dtype).mlm_logits
        F.cross_entropy(logits.float(), batch.token_ids[masked].long()).backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        if runtime.device != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - start)
    return len(tokens) / max(min(seconds[1:]), 1e-9)


def _is_letter(character: str) -> bool:
    """Whether it is a letter or a mark of one, as the vowel signs of Hindi are."""
    return unicodedata.category(character)[0] in "LM"


def _in_words(figures: TextFigures) -> str:
    return (
        f"{figures.pieces_per_word:.3f} pieces per word, {figures.whole_rate:.1%} of the words whole, "
        f"{figures.unknown_rate:.2%} unknown"
    )
