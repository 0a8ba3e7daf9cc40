"""The report of an adaptation: changes in the vocabulary, and scores on the domain, on general text and on a task.

Everything is computed from the content of report.json.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.pages import html
from bertsmith.base.storage.files import write_json
from bertsmith.recipes.adaptation.masked_words import WordLoss
from bertsmith.recipes.adaptation.settings import ADAPTED, AS_IT_IS, FROM_SCRATCH
from bertsmith.text.vocabularies.report import TextFigures

JSON_FILE = "report.json"
DOMAIN, GENERAL = "field", "general"  # the keys of both texts in report.json
_SHOWN = {DOMAIN: "domain"}
_NOTES = (
    "The loss is that of masked words, which are the same for both models: nats per word, and per character of these "
    "words. The interval of the change is over passages (paired bootstrap, 95%).",
    "On general text, an increase shows how much the model has forgotten.",
)


def loss_values(loss: WordLoss, before: WordLoss | None = None) -> dict[str, Any]:
    """The losses of a model as plain values, and their change from those of another one."""
    values: dict[str, Any] = {
        "per_word": round(loss.per_word, 4),
        "per_character": round(loss.per_character, 4),
        "words": sum(loss.words),
    }
    change = None if before is None else loss.change_from(before)
    if change is not None:
        values["change"] = [round(number, 4) for number in (change.difference, change.low, change.high)]
    return values


def fragmentation(figures: TextFigures) -> dict[str, float]:
    """How a vocabulary splits a text, as plain values."""
    return {
        "pieces_per_word": round(figures.pieces_per_word, 4),
        "whole_words": round(figures.whole_rate, 4),
        "unknown_words": round(figures.unknown_rate, 5),
    }


def write_report(folder: Path, report: Mapping[str, Any]) -> Path:
    """Writes report.json and report.html, and returns the path of the page."""
    write_json(folder / JSON_FILE, report)
    return html.write_page(folder / html.PAGE_FILE, "Adaptation", *_parts(report))


def table_of(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table, as texts: each quantity before and after."""
    rows = []
    for name, values in report["fragmentation"].items():
        if name == DOMAIN:
            rows += [
                _row("pieces per word", values, "pieces_per_word", "{:.3f}"),
                _row("words that are one piece", values, "whole_words", "{:.1%}"),
                _row("unknown words", values, "unknown_words", "{:.2%}"),
            ]
        else:
            rows.append(_row(f"pieces per word, {name} text", values, "pieces_per_word", "{:.3f}"))
    for name, values in report["losses"].items():
        loss = f"loss on {_SHOWN.get(name, name)} text"
        row = _row(f"{loss}, nats per word", values, "per_word", "{:.3f}")
        change = values["after"].get("change")
        if change is not None:
            row[3] = f"{change[0]:+.3f} ({change[1]:+.3f} to {change[2]:+.3f})"
        elif "before" in values:
            row[3] += " (no interval: one passage)"
        rows += [row, _row(f"{loss}, nats per character", values, "per_character", "{:.4f}")]
    if report.get("task"):
        task = report["task"]
        arms = {arm: _with_spread(score) for arm, score in task["arms"].items()}
        change = task["arms"][ADAPTED]["mean"] - task["arms"][AS_IT_IS]["mean"]
        rows.append([f"{task['task']}, {task['metric']}", arms[AS_IT_IS], arms[ADAPTED], f"{change:+.4f}"])
        if FROM_SCRATCH in arms:
            rows.append([f"{task['task']}, {task['metric']}, new model from scratch", "–", arms[FROM_SCRATCH], ""])
    return ["", "before", "after", "change"], rows


def lines_below(report: Mapping[str, Any]) -> list[str]:
    """The sentences of the report: what was trained, what was added, the comparisons on the task."""
    lines = [report["trained"]]
    if report.get("added"):
        lines.append(f"added words: {' '.join(report['added'])}")
    if report.get("shared_pieces", 1.0) < 1:
        lines.append(f"{report['shared_pieces']:.1%} of the pieces of the model as it was are in the new vocabulary")
    if report.get("task"):
        lines += report["task"]["comparisons"]
    lines += [f"note: {note}" for note in report["forecast"]["notes"]]
    return [*lines, *(f"advice: {line}" for line in report["advice"])]


def _row(title: str, values: Mapping[str, Mapping[str, float]], name: str, form: str) -> list[str]:
    after = values["after"][name]
    if "before" not in values:  # the loss of a model without a masked-LM head
        return [title, "–", form.format(after), ""]
    before = values["before"][name]
    sign = form.replace("{:", "{:+")
    return [title, form.format(before), form.format(after), sign.format(after - before)]


def _with_spread(score: Mapping[str, Any]) -> str:
    several: Sequence[float] = score["values"]
    return f"{score['mean']:.4f}" + (f" ± {score['deviation']:.4f}" if len(several) > 1 else "")


def _parts(report: Mapping[str, Any]) -> list[str]:
    header, rows = table_of(report)
    texts = [[text["name"], f"{text['words']:,}", text["digest"]] for text in report["texts"]]
    return [
        html.summary([report["trained"]]),
        html.section("Before and after", html.table(rows, header), *map(html.note, _NOTES)),
        html.section("Notes", *map(html.note, lines_below(report)[1:])),
        html.section("Text of the domain", html.table(texts, ["file", "words", "digest"])),
        html.record_tables([report]),
    ]
