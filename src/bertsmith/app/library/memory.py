"""Answers of a memory network about lists of facts."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bertsmith.base.core.requests import takes
from bertsmith.base.machine.runtime import choose
from bertsmith.recipes.memory.model_folder import read_memory_model
from bertsmith.recipes.memory.request import AnswerMemoryRequest
from bertsmith.recipes.memory.stories import encode_stories, story_of, warn_of_longer
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
    """

    answer: str | None
    probability: float | None
    facts: tuple[str, ...]
    attention: tuple[tuple[float, ...], ...]
    unknown_words: int

    @property
    def fact(self) -> str:
        """The fact with the most attention in the last hop."""
        weights = self.attention[-1]
        return self.facts[weights.index(max(weights))]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)


def memory_answers(request: AnswerMemoryRequest, records: Iterable[tuple[str, Any]]) -> Iterator[MemoryAnswer]:
    """The answer about each record with `facts` and `question`, in order.

    Args:
        records: each with its location, for messages.
    """
    model, tokenizer, metadata = read_memory_model(request.model)
    device = choose(request.device, "fp32").torch_device
    model, answers = model.to(device), metadata.labels
    stories = (story_of(record, location) for location, record in records)
    most, longer = model.config.max_position_embeddings, 0
    for block in sized_blocks(stories, lambda story: sum(map(len, story.facts)), STORIES, CHARACTERS):
        longer += sum(len(story.facts) > most for story in block)
        encoded = encode_stories(block, tokenizer, answers, most, None)
        batch = story_batch(encoded, range(len(block)), device, hops=model.config.num_hidden_layers).stories
        with torch.no_grad():
            output = model(batch)
        probabilities = output.answers.softmax(1).tolist()
        for story, chances, hops, count, unknown in zip(
            block, probabilities, output.attention(batch.counts), batch.counts, encoded.unknown, strict=True
        ):
            best = max(range(len(answers)), key=chances.__getitem__) if answers else None
            yield MemoryAnswer(
                None if best is None else answers[best],
                None if best is None else chances[best],
                story.facts[-count:],
                tuple(tuple(hop) for hop in hops),
                unknown,
            )
    warn_of_longer(longer, most, str(request.facts or "the stories"))


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
