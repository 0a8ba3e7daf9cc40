"""Answers of a memory network about lists of facts."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bertsmith.app.library.record_models import FP32, ReadRecord, RecordAbility, RecordModel, require_usual
from bertsmith.base.core.errors import brief_repr, some
from bertsmith.base.core.finite import require_finite
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import takes
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.hub import model_name
from bertsmith.recipes.memory.model_folder import TASK, read_memory_model
from bertsmith.recipes.memory.request import AnswerMemoryRequest
from bertsmith.recipes.memory.stories import EncodedStories, Story, encode_stories, story_of, warn_of_longer
from bertsmith.recipes.memory.workload import story_batch
from bertsmith.tasks.datasets.blocks import sized_blocks
from bertsmith.tasks.datasets.file_text import file_text, lines_of
from bertsmith.tasks.datasets.values import parse_json

STORIES, CHARACTERS = 64, 100_000  # computed together


@dataclasses.dataclass(frozen=True)
class MemoryAnswer:
    """What a memory network answers.

    Attributes:
        answer: None if the model knows no answers, only facts.
        probability: of the answer, among those of the model.
        facts: those that were read, the last ones of the story.
        attention: for each hop the weight of each of these facts; the weights of a hop add up to 1.
        unknown_words: how many words of facts and question the model does not know.
        unknown: these words.
    """

    answer: str | None
    probability: float | None
    facts: tuple[str, ...]
    attention: tuple[tuple[float, ...], ...]
    unknown_words: int
    unknown: tuple[str, ...] = ()

    @property
    def fact(self) -> str:
        """The fact with the most attention in the last hop."""
        weights = self.attention[-1]
        return self.facts[weights.index(max(weights))]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the unknown words."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "unknown"}


def memory_answers(request: AnswerMemoryRequest, records: Iterable[tuple[str, Any]]) -> Iterator[MemoryAnswer]:
    """The answer about each record with `facts` and `question`, in order.

    Args:
        records: each with its location, for messages.
    """
    memory = _Memory(request.model, request.device)
    stories = (story_of(record, location) for location, record in records)
    longer = 0
    for block in sized_blocks(stories, lambda story: sum(map(len, story.facts)), STORIES, CHARACTERS):
        longer += sum(len(story.facts) > memory.most for story in block)
        yield from memory.answers(block)
    warn_of_longer(longer, memory.most, str(request.facts or "the stories"))


class _Memory:
    """A loaded memory network.

    Attributes:
        most: facts of a story that are read.
    """

    def __init__(self, path: str | Path, device: str) -> None:
        model, self.tokenizer, metadata = read_memory_model(path)
        self.device = choose(device, "fp32").torch_device
        self.model, self.labels = model.to(self.device), metadata.labels
        self.most = model.config.max_position_embeddings

    def encoded(self, stories: Sequence[Story], most: int) -> EncodedStories:
        """Stories with that many of their last facts."""
        return encode_stories(stories, self.tokenizer, self.labels, most, None)

    def answers(self, stories: Sequence[Story]) -> Iterator[MemoryAnswer]:
        """The answers about stories that are computed together."""
        encoded, answers = self.encoded(stories, self.most), self.labels
        hops = self.model.config.num_hidden_layers
        batch = story_batch(encoded, range(len(stories)), self.device, hops=hops).stories
        with torch.no_grad():
            output = self.model(batch)
        scores = [output.answers, *output.hops] if answers else output.hops
        for numbers in scores:  # a story has a finite score for one fact at least
            require_finite(numbers.amax(dim=1).cpu().numpy(), lambda index: index)
        probabilities = output.answers.softmax(1).tolist()
        for story, chances, of_hops, count, unknown in zip(
            stories, probabilities, output.attention(batch.counts), batch.counts, encoded.unknown, strict=True
        ):
            best = max(range(len(answers)), key=chances.__getitem__) if answers else None
            yield MemoryAnswer(
                None if best is None else answers[best],
                None if best is None else chances[best],
                story.facts[-count:],
                tuple(tuple(hop) for hop in of_hops),
                unknown,
                self._unknown((*story.facts[-count:], story.question)) if unknown else (),
            )

    def _unknown(self, texts: Sequence[str]) -> tuple[str, ...]:
        """The words of some texts that are not in the vocabulary, in order."""
        unk = self.tokenizer.vocabulary.unk_id
        of_texts = [(text, self.tokenizer.encode_with_offsets(text)) for text in texts]
        return tuple(
            text[begin:end]
            for text, pieces in of_texts
            for number, begin, end in zip(pieces.ids, pieces.starts, pieces.ends, strict=True)
            if number == unk
        )


def remarks_on_unknown(words: Sequence[str]) -> list[str]:
    """A sentence to read with answers about stories, if the model does not know some of their words."""
    named = some([brief_repr(word) for word in dict.fromkeys(words)])
    said = f"{counted(len(words), 'word')} not in the training stories or too rare there, read as unknown: {named}"
    return [said] if words else []


def json_stories(blocks: Iterable[Sequence[str]]) -> Iterator[tuple[str, Any]]:
    """The record on each line of stdin that is not blank, with its location."""
    number = 0
    for block in blocks:
        for line in block:
            number += 1
            if line.strip():
                location = f"line {number:,} of stdin"
                yield location, parse_json(line, location)


def asked_story(request: AnswerMemoryRequest) -> tuple[str, Mapping[str, Any]]:
    """The record of the facts in a file and a question, with its location."""
    path = Path(str(request.facts))
    lines = lines_of(file_text(path, kind="facts", encoding=request.encoding))
    return f"'{path}'", {"facts": [line for line in lines if line.strip()], "question": request.question}


@takes(AnswerMemoryRequest)
def answer_from_memory(request: AnswerMemoryRequest) -> list[MemoryAnswer]:
    """What a memory network answers: `answer`, `probability`, and the `attention` on each of the `facts` per hop.

    The model is read at each call.

    Raises:
        BertsmithError: there is no such model, or a record is not a story.
    """
    records = [(f"story {number:,}", record) for number, record in enumerate(request.stories, start=1)]
    return list(memory_answers(request, ([asked_story(request)] if request.facts is not None else []) + records))


def served_memory(path: Path | str, *, device: str = "auto", **options: Any) -> RecordModel:
    """A memory network that answers about stories as `answer_from_memory` does, without reading it each time."""
    require_usual(path, options, FP32)
    memory = _Memory(path, device)

    def read(records: Sequence[Any]) -> list[ReadRecord]:
        stories = [story_of(record, f"story {number}") for number, record in enumerate(records, start=1)]
        encoded = memory.encoded(stories, max(len(story.facts) for story in stories))
        words = encoded.texts.lengths
        return [
            ReadRecord(story, int(words[facts].sum() + words[question]), int(words[facts[: -memory.most]].sum()))
            for story, facts, question in zip(stories, encoded.facts, encoded.questions, strict=True)
        ]

    def answers(stories: Sequence[Story]) -> list[MemoryAnswer]:
        return list(memory.answers(stories))

    def remarks(answers: Sequence[MemoryAnswer]) -> list[str]:
        return remarks_on_unknown([word for answer in answers for word in answer.unknown])

    return RecordModel(
        name=model_name(path),
        task=TASK,
        table={"answer_from_memory": RecordAbility(read, answers, remarks)},
        hooked=(memory.model,),
        device=str(memory.device),
        labels=tuple(memory.labels),
        max_length=memory.most,
        numbers=memory.most * memory.model.config.num_hidden_layers,
    )
