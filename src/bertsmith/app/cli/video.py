"""Commands for features as words, and for texts with codes: training, missing words, what belongs together."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.app.cli.options import JsonOption, print_json, print_table, say
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.recipes.video.request import (
        AssignRequest,
        ClusterRequest,
        CodeFeaturesRequest,
        FillCodesRequest,
        MatchCodesRequest,
        NextCodesRequest,
        TrainVideoRequest,
    )


def cluster(request: "ClusterRequest") -> None:
    """Learn words for feature vectors: the leaves of a tree of centers, by hierarchical k-means."""
    from bertsmith.recipes.video.features import cluster_features

    words = call(cluster_features, request)
    counts = words.counts[words.leaves]
    say(
        f"{counted(len(words), 'word')} of width {words.width}, for {counts.min():,} to {counts.max():,} of "
        f"{counted(int(counts.sum()), 'vector')} each",
        f"words: {request.out}",
    )


def assign(request: "AssignRequest") -> None:
    """Name each feature vector with its word: a table of events with subject, time and code."""
    from bertsmith.recipes.video.features import assign_words

    count = call(assign_words, request)
    say(counted(count, "event"), f"events: {request.out}")


def train(request: "TrainVideoRequest") -> None:
    """Train a BERT on texts with the codes of the same moment, such as visual words (VideoBERT).

    It learns masked words, masked codes, and which texts and codes belong together. Ctrl-C finishes the step, writes a
    checkpoint and exits with code 130; --resume continues from there.
    """
    from bertsmith.recipes.video.run import train_video

    result = call(train_video, request)
    say(counted(result.steps, "step"), *(f"{name}: {value:.4f}" for name, value in result.scores.items()))
    say(f"model: {Path(request.out) / 'model'}")


def fill(request: "FillCodesRequest", json: JsonOption = False) -> None:
    """Fill the gaps of a text given codes: what is done, and to what, without any training on such questions.

    Prints the most likely words of each gap with their probability, and those without the codes for comparison.
    """
    from bertsmith.app.library.video import fill_codes

    for filling in call(fill_codes, request):
        if json:
            print_json(filling.to_dict())
            continue
        say(f"codes: {' '.join(filling.codes)}")
        for number, (gap, alone) in enumerate(zip(filling.gaps, filling.alone, strict=True), start=1):
            for name, words in (("with codes", gap), ("without", alone)):
                say(f"gap {number} {name}: " + ", ".join(f"{word.piece} {word.probability:.3f}" for word in words))


def match(request: "MatchCodesRequest", json: JsonOption = False) -> None:
    """Find the segments that belong to a text or to codes; without either, score the model on the segments.

    The scores are the accuracy on true and false pairs, where chance is a half, and how often the right codes or the
    right text is among the first of some candidates.
    """
    from bertsmith.app.library.video import RECALLS, CodesMatching, match_codes

    result = call(match_codes, request)
    if isinstance(result, CodesMatching):
        if json:
            print_json(result.to_dict())
            return
        say(
            f"{counted(result.segments, 'segment')}; true and false pairs: {result.alignment_accuracy:.4f} "
            "(chance: 0.5)"
        )
        names = [f"recall@{count}" for count in RECALLS]
        titled = {
            "codes of a text": result.codes_of_text,
            "text of codes": result.text_of_codes,
            "chance": result.chance,
        }
        rows = [[title, *(f"{values[name]:.4f}" for name in names)] for title, values in titled.items()]
        print_table([f"among {result.candidates}", *names], rows)
        return
    for segment in result:
        if json:
            print_json(segment.to_dict())
        else:
            say(f"{segment.probability:.4f}\t{segment.text}\t{' '.join(segment.codes)}")


def following(request: "NextCodesRequest", json: JsonOption = False) -> None:
    """Predict the codes that follow codes, each with its probability."""
    from bertsmith.app.library.video import next_codes

    for code, probability in call(next_codes, request):
        if json:
            print_json({"code": code, "probability": probability})
        else:
            say(f"{code}\t{probability:.4f}")


def features(request: "CodeFeaturesRequest") -> None:
    """Write a vector of each segment: the mean state of its codes, and that of the gaps of a text next to them."""
    from bertsmith.app.library.video import code_features

    count, width = call(code_features, request)
    say(f"{counted(count, 'vector')} of width {width}", f"vectors: {request.out}")
