"""Commands for memory networks: training on stories, and answers about facts."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.app.cli.options import JsonOption, note, print_json, say
from bertsmith.app.cli.text import stdin_lines
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.recipes.memory.request import AnswerMemoryRequest, TrainMemoryRequest


def train(request: "TrainMemoryRequest") -> None:
    """Train a memory network, which answers questions about a list of facts, on stories with questions.

    Ctrl-C finishes the step, writes a checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.recipes.memory.run import train_memory

    result = call(train_memory, request)
    say(counted(result.steps, "step"), *(f"{name}: {value:.4f}" for name, value in result.scores.items()))
    say(f"model: {Path(request.out) / 'model'}")


def answer(request: "AnswerMemoryRequest", json: JsonOption = False) -> None:
    """Answer a question about the facts in a file, or those of each JSON line of stdin.

    Prints the answer and its probability; with a model that knows no answers, the fact with the most attention and its
    weight. With --json also the attention on each fact in each hop.
    """
    from bertsmith.app.library.memory import asked_story, json_stories, memory_answers, remarks_on_unknown

    records = json_stories(stdin_lines(request)) if request.facts is None else [asked_story(request)]
    unknown: list[str] = []
    for result in memory_answers(request, records):
        unknown += result.unknown
        if json:
            print_json(result.to_dict())
        elif result.answer is None:
            say(f"{result.fact}\t{max(result.attention[-1]):.4f}")
        else:
            say(f"{result.answer}\t{result.probability:.4f}")
    for remark in remarks_on_unknown(unknown):
        note(remark)
