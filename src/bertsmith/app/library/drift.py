"""How later texts differ from those that a model was trained on.

::

    DIR/drift.json    words, pieces, lengths, predictions of both; the tests of whether they differ
    DIR/unlike.csv    the later texts, those that are least like the training texts first
    DIR/report.html   the same as a page

Texts differ by their words or, with a model that gives vectors, by these; see `tasks.metrics.two_samples`.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.app.library.inputs import silently
from bertsmith.app.library.loading import load
from bertsmith.app.library.model import Model
from bertsmith.app.library.request import DriftRequest
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, short_repr, shown_p, tell
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.requests import takes
from bertsmith.base.core.tables import local_path
from bertsmith.base.pages import html
from bertsmith.base.storage.files import write_csv, write_json
from bertsmith.base.storage.locks import require_unused
from bertsmith.inference.vectors.embedder import BLOCK, EitherVectors, Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.recipes.audit.out_of_fold import bag_features
from bertsmith.tasks.datasets.examples import Example, TextExample, whole_text
from bertsmith.tasks.metrics.two_samples import shares_below, two_sample_test
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.tasks.task_data.split import fold_numbers
from bertsmith.tasks.task_data.unlabelled import read_unlabelled

TRAINING, LATER = SIDES = ("training", "later")
FOLDS = 5
LEAST, MOST = 20, 10_000  # different texts of a side that the test needs, and texts that it reads
_SHOWN = 50  # texts on the page
_LONGEST_TEXT = 300  # characters of a text in the results
_OF_LABELS = TaskSpec(kind="classification", name="classification", pair=None)  # without a model
_TITLES = {
    "texts": "texts", "words": "words per text", "pieces_per_word": "pieces per word", "unknown": "unknown pieces",
    "tokens": "tokens per text", "longest": "tokens of the longest text", "cut": "truncated texts",
    "confidence": "mean confidence", "mean": "mean of the predicted numbers",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift:
    """How later texts differ from training texts.

    Attributes:
        report: the content of drift.json.
        unlike: the later texts, each with the share of the training texts that look less like later ones, the highest
            first; by the vectors if the model gives some.
    """

    report: Mapping[str, Any]
    unlike: Sequence[Mapping[str, Any]]

    __repr__ = short_repr

    def rows(self) -> list[list[str]]:
        """The numbers of both sides, as rows of a table; those of predicted labels last."""
        sides = [self.report[side] for side in SIDES]
        names = [name for name in _TITLES if all(name in side for side in sides)]
        rows = [[_TITLES[name], *(html.cell(side[name]) for side in sides)] for name in names]
        for label, shares in self.report.get("labels", {}).items():
            rows.append([f"predicted as {label}", *(f"{share:.1%}" for share in shares)])
        return rows

    def lines(self) -> list[str]:
        """The results, as lines of text."""
        return [
            *self.verdicts(),
            *(
                f"{name}: {training} in the training texts, {later} in the later ones"
                for name, training, later in self.rows()
            ),
        ]

    def verdicts(self) -> list[str]:
        """Whether the texts differ: by their words and, if the model gives some, by their vectors."""
        lines = []
        for name, kind in (("test", "words"), ("vectors", "vectors")):
            if (test := self.report.get(name)) is not None:
                low, high = test["interval"]
                verdict = "the later texts differ from the training texts" if test["differ"] else "no difference"
                lines.append(
                    f"{verdict}{'' if test['differ'] else ' beyond noise'} by the mean of the {kind}, p "
                    f"{shown_p(test['p_value'])}: area under the ROC curve {test['area']:.3f} (95% interval {low:.3f} "
                    f"to {high:.3f}; 0.5 is chance)"
                )
        return lines


@takes(DriftRequest)
def drift(request: DriftRequest) -> Drift:
    """How later texts, such as requests, differ from the texts that a model was trained on.

    Raises:
        BertsmithError: a file or the model is invalid, or there are too few texts; the message says which.
    """
    if request.out is not None:
        require_unused(Path(request.out), "name another folder")
    model = None if request.model is None else load(request.model, **request.arguments(load))
    spec = _OF_LABELS if model is None or model._predictor is None else model._predictor.task.spec
    columns = request.part(ColumnSettings)
    training, later = (
        read_unlabelled(local_path(path), spec.kind, spec, columns) for path in (request.train, request.texts)
    )
    report: dict[str, Any] = {TRAINING: _words(training), LATER: _words(later)}
    if model is not None:
        for side, examples in zip(SIDES, (training, later), strict=True):
            report[side] |= _pieces(model, examples)
        if model._predictor is not None:
            report |= _predictions(model, report, training, later)
    tests, unlike = _tests(training, later, model, request.seed)
    result = Drift(report=report | tests, unlike=unlike)
    if request.out is not None:
        _write(Path(request.out), result)
    return result


def _words(examples: Sequence[Example]) -> dict[str, Any]:
    counts = [len(whole_text(example).split()) for example in examples]
    return {"texts": len(examples), "words": float(np.mean(counts))}


def _pieces(model: Model, examples: Sequence[Example]) -> dict[str, Any]:
    """The pieces per word, the share of unknown ones, the tokens of a text, and the share of truncated texts."""
    if not model.shows_pieces:
        return {}
    tokenizer, predictor = model.tokenizer, model._predictor
    if predictor is None:
        texts, embedder = [whole_text(example) for example in examples], model.embedder
        ability = "embed" if "embed" in model.abilities else model.abilities[0]
        if isinstance(embedder, TokenEmbedder):  # texts are read as documents
            encoded = embedder.encode_side(texts, embedder.recipe.documents)
            lengths = encoded.lengths + tokenizer.template.num_special(1)
        else:
            lengths = np.array(model.tokens(texts, ability))
        ids = encoded_texts([TextExample(id="", first=text) for text in texts], tokenizer).ids
    else:
        ability = model.abilities[0]
        tokenized = predictor.tokenized(examples)
        lengths = np.array([max(predictor.task.tokens_of_rows(each, tokenizer.template)) for each in tokenized])
        ids = encoded_texts(tokenized, tokenizer).ids
    words = sum(len(whole_text(example).split()) for example in examples)
    longest = model.reads_at_most(ability)
    return {
        "pieces_per_word": len(ids) / max(1, words),
        "unknown": float((ids == tokenizer.vocabulary.unk_id).mean()) if len(ids) else 0.0,
        "tokens": float(lengths.mean()),
        "longest": int(lengths.max()),
        "cut": 0.0 if longest is None else float((lengths > longest).mean()),
    }


def _predictions(
    model: Model, report: Mapping[str, Any], training: Sequence[Example], later: Sequence[Example]
) -> dict[str, Any]:
    """Both sides with the mean confidence, or the mean of the numbers, and the shares of the predicted "labels"."""
    assert model._predictor is not None, "a model with a task"
    sides = [model._predictor.predict(examples) for examples in (training, later)]
    result: dict[str, Any] = {}
    for name, predictions in zip(SIDES, sides, strict=True):
        known = [each.confidence for each in predictions if each.confidence is not None]
        numbers = [each.outcome for each in predictions if isinstance(each.outcome, float)]
        result[name] = {
            **report[name],
            **({"confidence": float(np.mean(known))} if known else {}),
            **({"mean": float(np.mean(numbers))} if numbers else {}),
        }
    counts = [Counter(each.outcome for each in predictions) for predictions in sides]
    if set(counts[0]) | set(counts[1]) <= set(model.labels):
        labels = sorted(set(counts[0]) | set(counts[1]), key=model.labels.index)
        totals = [counter.total() for counter in counts]
        result["labels"] = {
            label: [counter[label] / total for counter, total in zip(counts, totals, strict=True)] for label in labels
        }
    return result


def _tests(
    training: Sequence[Example], later: Sequence[Example], model: Model | None, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tests of whether the texts differ, and the later texts, those least like the training texts first."""
    read: list[TextExample] = []
    for side, examples in zip(SIDES, (training, later), strict=True):
        if (different := len(set(map(whole_text, examples)))) < LEAST:
            raise InputError(
                expected=f"at least {LEAST} different {side} texts", found=f"{different:,}", fix="name a larger file"
            )
        numbers = generator(seed, f"{side} texts").permutation(len(examples))[:MOST] if len(examples) > MOST else None
        if numbers is not None:
            tell(f"{len(examples):,} {side} texts: {MOST:,} of them, drawn at random, are tested")
        for number in range(len(examples)) if numbers is None else sorted(numbers.tolist()):
            text, location = whole_text(examples[number]), getattr(examples[number], "location", "")
            read.append(TextExample(id=str(len(read)), first=text, label=side, location=location))
    # Among words that are equally rare, the bag counts those of the first texts: neither side may come first.
    read = [read[number] for number in generator(seed, "order of texts").permutation(len(read)).tolist()]
    spec = TaskSpec(kind="classification", name="classification", labels=SIDES)
    is_later = np.array([example.label == LATER for example in read])
    folds = np.array(fold_numbers(read, FOLDS, seed))
    with silently():
        inputs = {"test": bag_features(spec, read).inputs}
        if model is not None and model.task is None and model.shows_pieces:
            inputs["vectors"] = _vectors(model.embedder, [example.first for example in read])
    results = {name: two_sample_test(rows, is_later, folds, seed) for name, rows in inputs.items()}
    scores = results[next(reversed(results))][1]
    shares = shares_below(np.sort(scores[~is_later]), scores)
    unlike = [
        {
            "share": round(float(shares[number]), 4),
            "text": read[number].first[:_LONGEST_TEXT],
            "location": read[number].location,
        }
        for number in np.argsort(-scores, kind="stable").tolist()
        if is_later[number]
    ]
    tests = {
        name: {"area": test.area, "interval": [test.low, test.high], "p_value": test.p_value, "differ": test.differ}
        for name, (test, _) in results.items()
    }
    return tests, unlike


def _vectors(embedder: Embedder, texts: Sequence[str]) -> EitherVectors:
    """A vector of each text; of a model of token vectors, their mean. The share "cut" counts truncated texts."""
    if not isinstance(embedder, TokenEmbedder):
        return embedder.embed_either(texts)[0]
    blocks = (embedder.documents(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK))
    return np.array([vectors.mean(axis=0) for block in blocks for vectors in block])


def _write(folder: Path, result: Drift) -> None:
    """Writes the results and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["share", "text", "location"]
    write_csv(folder / "unlike.csv", [columns, *([text[name] for name in columns] for text in result.unlike)])
    write_json(folder / "drift.json", dict(result.report))
    unlike = [[f"{text['share']:.4f}", text["text"]] for text in result.unlike[:_SHOWN]]
    html.write_page(
        folder / html.PAGE_FILE,
        "Drift of texts",
        html.section("Do the texts differ?", html.lines(result.verdicts())),
        html.section("Texts and predictions", html.table(result.rows(), ["", *SIDES])),
        html.section(
            f"{counted(len(unlike), 'later text')}, least like the training texts first",
            html.table(unlike, ["share of training texts that are more alike", "text"]),
        ),
    )
