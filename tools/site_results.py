"""The section of results of the site, from benchmarks/results/: a page of each topic, the newest machine first.

A page begins with one figure, from its newest result; then follow the scripts with their command and their results. The
words about results are in benchmarks/README.md, which the section contains too.
"""

import ast
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from speed_table import BENCHMARKS, RESULTS, best_peer, speed_lines

from bertsmith.base.pages.charts import bar_chart

Bar = tuple[float, float, float]  # its length, both ends of its range
MACHINE = re.compile(r"_((?:amd|intel|nvidia)-[a-z0-9-]+?)(?:-(\d+)-(cores|threads?))?(?=_|\.json)")
NAMES = {
    "amd": "AMD",
    "epyc": "EPYC",
    "intel": "Intel",
    "nvidia": "NVIDIA",
    "h200": "H200",
    "xeon": "Xeon",
    "r": "",
    "processor": "",
}
# Results of other programs than the script whose name they begin with.
PROGRAMS = {
    "compare": "bertsmith compare",
    "starter": "python benchmarks/finetuning_recipes.py --model starter --out ...",
}


class Figure(NamedTuple):
    """What a page shows first: bars of the newest of some results.

    Attributes:
        results: what their names begin with.
        bars: the bars of a result, by name.
        about: what the bars are.
        unit: of their lengths.
        ranges: what the lines on the bars span, if they have any.
    """

    results: str
    bars: Callable[[Any], Mapping[str, Bar]]
    about: str
    unit: str
    ranges: str = "the rounds"


class Topic(NamedTuple):
    """A page: its name, its title, the scripts whose results it lists, its figure."""

    name: str
    title: str
    scripts: str
    figure: Figure


class Result(NamedTuple):
    """A result file: its name, its content, its machine, how many cores or threads, its day (or "") and versions."""

    name: str
    content: Any
    machine: str
    cores: str
    day: str
    versions: str


def plain(values: Mapping[str, Any], entry: str = "") -> dict[str, Bar]:
    """A bar for each value: a number, a median with the lowest and highest, or repetitions."""
    bars = {}
    for name, value in values.items():
        value = value[entry] if entry else value
        if isinstance(value, list):
            bars[name] = (statistics.median(value), min(value), max(value))
        elif isinstance(value, dict):
            bars[name] = (value["median"], value["lowest"], value["highest"])
        else:
            bars[name] = (value, value, value)
    return bars


def against_the_best_peer(result: dict[str, Any]) -> dict[str, Bar]:
    """How many times as fast ours is as the fastest peer, by case."""
    lines = ((line, best_peer(line.medians)) for line in speed_lines(result, None))
    return plain({line.case: line.ratios[peer] for line, peer in lines if peer is not None})


def ladder(result: dict[str, Any]) -> dict[str, Bar]:
    """The score of each system of `compare` with the most labels."""
    most = max(row["labels"] for row in result["rows"])
    rows = [row for row in result["rows"] if row["labels"] == most]
    return {row["system"]: (row["mean"], min(row["values"]), max(row["values"])) for row in rows}


TOPICS = (
    Topic("encoding", "Encoding and first answers", """encode_speed latency attention_products joined_attention
          architectures_speed encoding_memory precision_loss large_model""",
          Figure("encode_speed_", against_the_best_peer, "tokens of ours per second, against the fastest other runtime",
                 "times as fast")),
    Topic("text", "Vocabularies, tokens and corpora",
          "tokenizer_speed vocabulary_learning commands cluster_throughput languages",
          Figure("tokenizer_speed_", lambda result: plain(result["megabytes_per_second"]),
                 "WordPiece with identical ids, ours and the package tokenizers", "megabytes per second")),
    Topic("training-speed", "Speed and memory of training", """gpu_speed pretraining_step training_products
          training_memory busy_machine planning large_finetuning""",
          Figure("pretraining_step_",
                 lambda result: plain(result["cases"]["rows of natural length"]["tokens_per_second"]),
                 "a pre-training step of BERT-base on rows of natural length", "tokens per second")),
    Topic("pre-training", "Pre-training", """learning_speed ablations pretraining_corpora pretraining_gain
          pretraining_ideas pretraining_recipe pretraining_shapes adaptation own_text sequence_layers""",
          Figure("learning_speed_gutenberg_mini_60",
                 lambda result: plain({row["arm"]: row for row in result["rows"]}, "top5"),
                 "an hour of pre-training on novels: accuracy among the first five guesses", "top-5 accuracy")),
    Topic("fine-tuning", "Fine-tuning", """compare finetuning finetuning_averages finetuning_recipes starter adapters
          unseen_tasks hierarchy long_documents feature_based transfer_matrix supervised_transfer""",
          Figure("compare_trec_", ladder, "questions of TREC, from counting words to BERT", "accuracy", "the seeds")),
    Topic("labels", "Doubtful, few and no labels",
          "label_errors corrected_labels next_labels selective drift zero_shot",
          Figure("label_errors_", lambda result: plain(
              {name: cell for name, cell in result["cells"].items() if name.endswith(", 25,000 texts")},
              "average_precision"), "doubtful labels of film reviews that people judged again", "average precision")),
    Topic("smaller-models", "Smaller models", "distillation distillation_few_labels tinybert",
          Figure("tinybert_", lambda result: plain(result["rows"], "scores"),
                 "a small student after each stage of TinyBERT", "accuracy", "the seeds")),
    Topic("vectors", "Vectors of sentences and words",
          "sentence_encoders sentence_vectors vector_objectives word_vectors word_senses",
          Figure("word_senses_", lambda result: {
              f"{row['set']}, {row['system']}, {row['model']}": (row["f1"], row["low"], row["high"])
              for row in result["scores"] if row["set"] == result["scores"][0]["set"]},
                 "senses of words, by the vectors of a model", "F1", "95% intervals")),
    Topic("search", "Search", "retrieval retrieval_training vector_indexes",
          Figure("retrieval_amd", lambda result: plain(result["systems"], "ndcg@10"),
                 "passages of a collection", "nDCG@10")),
    Topic("serving", "Serving", "server_overhead server_soak server_index_load served_adapters",
          Figure("served_adapters_", lambda result: plain(result["cases"]["short"]["texts_per_processor_second"]),
                 "short texts for eight adapters of one model", "texts per processor second")),
    Topic("other-tasks", "Entities, texts, codes and other tasks", "",  # the scripts that no topic above names
          Figure("next_sentence_", lambda result: {
              name: (system["accuracy"], *system["accuracy_interval"]) for name, system in result["systems"].items()},
                 "which of two sentences follows", "accuracy", "95% intervals")),
)  # fmt: skip


@cache
def results() -> dict[str, list[Result]]:
    """The result files by script, those of the machine with the newest result first."""
    scripts = sorted((path.stem for path in BENCHMARKS.glob("*.py")), key=len, reverse=True)
    read = [result_of(path) for path in RESULTS.iterdir() if path.suffix in (".json", ".jsonl")]
    newest: dict[str, str] = {}
    for result in read:
        newest[result.machine] = max(newest.get(result.machine, ""), result.day)
    by_script: dict[str, list[Result]] = {}
    for result in sorted(read, key=lambda result: (newest[result.machine], result.day, result.name), reverse=True):
        script = next(name for name in [*PROGRAMS, *scripts] if result.name.startswith(f"{name}_"))
        by_script.setdefault(script, []).append(result)
    return by_script


def result_of(path: Path) -> Result:
    """The content of a result file, and what it and its name say of the machine."""
    text = path.read_text(encoding="utf-8")
    content = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines() if line]
    label = MACHINE.search(path.name)
    machine = next(_values(content, "machine"), {})
    if label is None:
        sys.exit(f"expected the machine in the name of {path.name}; found none; begin it with amd, intel or nvidia")
    packages = machine.get("packages", {})
    versions = {name: packages.get(name) or machine.get(name) for name in ("python", "torch", "numpy")}
    versions["python"] = machine.get("python")
    said = [f"{name} {version}" for name, version in versions.items() if version]
    named = re.search(r"_([a-z]+)-([\d.]+(?:\+\w+)?)(?=\.json|_)", path.name)
    versions_text = ", ".join(said) or (f"{named[1]} {named[2]}" if named else "")
    words = [NAMES.get(word, word) for word in label[1].split("-")]
    cores = f"{label[2]} {label[3].rstrip('s')}{'s' * (label[2] != '1')}" if label[2] else ""
    day = max(_values(content, "day"), default="")
    return Result(path.name, content, " ".join(filter(None, words)), cores, day, versions_text)


def _values(content: Any, key: str) -> Iterator[Any]:
    """The values of a key wherever it is."""
    if isinstance(content, dict):
        if key in content:
            yield content[key]
        content = list(content.values())
    if isinstance(content, list):
        for value in content:
            yield from _values(value, key)


def command_of(script: str) -> tuple[str, str]:
    """The first line of the docstring of a script, and the command that it shows."""
    if script in PROGRAMS:
        return "", PROGRAMS[script]
    text = ast.get_docstring(ast.parse((BENCHMARKS / f"{script}.py").read_text(encoding="utf-8"))) or ""
    usage = re.search(rf"^ +(python benchmarks/{script}\.py(?:.*\\\n)*.*)$", text, re.MULTILINE)
    return text.splitlines()[0], re.sub(r" *\\\n *", " ", usage[1]) if usage else f"python benchmarks/{script}.py"


def figure(drawn: Figure) -> str:
    """The figure of the newest result, with a line that says which."""
    results_of_it = [
        result for listed in results().values() for result in listed if result.name.startswith(drawn.results)
    ]
    newest = max(results_of_it, key=lambda result: (result.day, result.name))
    where = " · ".join(part for part in (newest.machine, newest.cores, newest.day) if part)
    bars = drawn.bars(newest.content)
    ranges = f" Lines span {drawn.ranges}." if any(low < high for _, low, high in bars.values()) else ""
    svg = bar_chart(bars, x_label=drawn.unit)
    return f"<figure>\n{svg}\n</figure>\n\n*{drawn.about[0].upper()}{drawn.about[1:]} ({where}).{ranges}*\n"


def variant(result: Result, script: str) -> str:
    """What the name of a result says besides script, machine and versions, such as "dropout.json"."""
    before = MACHINE.split(result.name)[0].removeprefix(script).strip("_").replace("_", " ")
    return f"{before}.{result.name.rpartition('.')[2]}".lstrip(".")


def page(topic: Topic) -> str:
    """The text of the page of a topic, in Markdown."""
    parts = [f"# {topic.title}\n", figure(topic.figure)]
    measured = [name for name in topic.scripts.split() if name in results()]
    for script in sorted(measured, key=lambda name: (max(r.day for r in results()[name]), name), reverse=True):
        about, command = command_of(script)
        rows = [
            f"| {', '.join(filter(None, (result.machine, result.cores)))} | {result.versions or '-'} | "
            f"{result.day or '-'} | [{variant(result, script)}](../benchmarks/results/{result.name}) |"
            for result in results()[script]
        ]
        head = ["| machine | versions | day | result |", "| --- | --- | --- | --- |"]
        parts.append(
            "\n".join([f"## {script}\n", f"{about}\n" if about else "", f"```sh\n{command}\n```\n", *head, *rows, ""])
        )
    return "\n".join(parts)


def overview() -> str:
    """The text of the first page: the topics, and the machines from the newest on."""
    listed = [result for of_script in results().values() for result in of_script]
    machines: dict[str, list[Result]] = {}
    for result in sorted(listed, key=lambda result: result.day, reverse=True):
        machines.setdefault(result.machine, []).append(result)
    rows = [f"| {name} | {its[0].day or '-'} | {len(its)} |" for name, its in machines.items()]
    topics = [f"- [{topic.title}]({topic.name}.md): {topic.figure.about}" for topic in TOPICS]
    about = (
        "What was measured, from the files in benchmarks/results: one page a topic, each with a figure of its newest "
        "result, then every result with its machine, versions, day and command. [The page of the "
        "benchmarks](../benchmarks/README.md) says what the results mean.\n"
    )
    head = ["| machine | newest result | results |", "| --- | --- | --- |"]
    return "\n".join(["# Results\n", about, figure(TOPICS[0].figure), *topics, "", *head, *rows, ""])


def pages() -> dict[str, str]:
    """The pages of the section, by their path on the site."""
    named = {script for topic in TOPICS for script in topic.scripts.split()}
    topics = [*TOPICS[:-1], TOPICS[-1]._replace(scripts=" ".join(results().keys() - named))]
    return {"results/index.md": overview(), **{f"results/{topic.name}.md": page(topic) for topic in topics}}
