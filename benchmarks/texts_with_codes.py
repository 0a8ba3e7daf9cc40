"""Texts with codes (VideoBERT): what codes tell about an action and an object, against the language alone.

    python benchmarks/texts_with_codes.py [--data DIR] [--only generated|epic] [--sizes 1000,4000] [--steps N]

Generated: each segment has one of 8 actions and one of 12 objects, frequent and rare ones. Its clips have feature
vectors of width 64, the sum of a vector of the action, one of the object, and noise; one in five clips shows neither.
The narration names both in one of five sentences, with one of five openings. The features become 12**2 words by
hierarchical k-means, whose centers are frozen rows. Then, of 500 other segments: alignment accuracy on true and false
pairs, and the action and the object in the gaps of a sentence that no narration has, given the codes of the segment.

EPIC-KITCHENS: with --data, a folder with `epic100_segments.tsv`. The codes are the classes of verbs and nouns of
the three segments before and the three after; those of the segment itself are left out, since they are made of its
caption. So a caption is predicted from what is done just before and after. Rows with captions of two words, a verb
and a noun, of the official validation videos: both words in the gaps of "[MASK] [MASK]".

"alone" is the same model without codes, "frequent" the most frequent words of the training captions, "before" the words
of the caption before. Differences are tested in pairs. The BERT to start from is new: two layers of width 64 with the
words of the training texts.
"""

import argparse
import collections
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from harness import begun, write_result

from bertsmith import Vocabulary, WordPieceTokenizer, assign_words, cluster_features, train_video
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.recipes.video.reader import VideoReader
from bertsmith.recipes.video.rows import NOTHING
from bertsmith.recipes.video.segments import Segment, read_segments
from bertsmith.tasks.metrics.uncertainty import paired_test, proportion_interval
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES

VERBS = "cut wash fry peel mix open pour dry".split()
NOUNS = "onion apple pan plate egg door milk spoon rice fish bread lid".split()
NARRATIONS = (
    "here i {} the {}",
    "you {} the {} now",
    "let us {} the {}",
    "next we {} the {}",
    "i show you how to {} the {}",
)
OPENINGS = ("", "now ", "so now ", "well ", "okay so now ")
PROMPT, EPIC_PROMPT = "now let me show you how to [MASK] the [MASK]", "[MASK] [MASK]"
MORE_WORDS = "me".split()
WIDTH, TEST, NEIGHBORS = 64, 500, 3
SIZES = {"generated": (250, 1000, 4000), "epic": (1000, 4000, 16000)}
STEPS = {"generated": 2000, "epic": 1200}
SETTINGS = {"learning_rate": 2e-3, "device": "cpu", "evaluate_every": 10**6, "log_every": 100}
OPTIONS: dict[str, dict[str, Any]] = {
    "generated": {"join": 0.0, "subsample": 2, "text_only": 0.1, "codes_only": 0.1},
    "epic": {
        "join": 0.0,
        "subsample": 1,
        "text_only": 0.1,
        "codes_only": 0.0,
        "misaligned": 0.2,
        "masked_share": 0.3,
        "minimum_count": 5,
        "rows_per_step": 128,
    },
}


def new_bert(folder: Path, texts: list[str]) -> Path:
    """A new BERT whose pieces are the words of texts that occur twice."""
    counts = collections.Counter(word for text in texts for word in text.split())
    words = sorted(word for word, count in counts.items() if count > 1)
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *dict.fromkeys([*words, *MORE_WORDS])]))
    config = BertConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256, max_position_embeddings=128, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    metadata = ModelMetadata.from_dict({"task": "pretraining"})
    save_pretrained(folder, untrained(config, 1), tokenizer, metadata, trained=("mlm",))
    return folder


def write_generated(folder: Path, count: int, seed: int) -> None:
    """The features of `count` segments, ten in each video, and their narrations."""
    source, world = np.random.default_rng(seed), np.random.default_rng(0)
    actions, objects = world.standard_normal((len(VERBS), WIDTH)), world.standard_normal((len(NOUNS), WIDTH))
    shares = [1 / np.arange(1, len(words) + 1) for words in (VERBS, NOUNS)]
    (folder / "features").mkdir(parents=True)
    lines = ["subject\tstart\tstop\ttext"]
    for video in range(count // 10):
        clips: list[np.ndarray] = []
        for _ in range(10):
            begin = 1.5 * len(clips)
            action, noun = (int(source.choice(len(share), p=share / share.sum())) for share in shares)
            for _ in range(int(source.integers(4, 9))):
                shown = source.random() > 0.2
                clips.append((actions[action] + objects[noun]) * shown + source.standard_normal(WIDTH))
            said = NARRATIONS[source.integers(len(NARRATIONS))].format(VERBS[action], NOUNS[noun])
            text = OPENINGS[source.integers(len(OPENINGS))] + said
            lines.append(f"{video}\t{begin}\t{1.5 * len(clips)}\t{text}")
        np.save(folder / f"features/{video}.npy", np.array(clips, dtype=np.float32))
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_generated(size: int, steps: int, folder: Path) -> dict[str, Any]:
    """The scores after training on that many segments."""
    for name, count, seed in (("train", size, 1), ("test", TEST, 2)):
        write_generated(folder / name, count, seed)
    words = cluster_features([folder / "train/features"], folder / "w.safetensors", depth=2, branching=12)
    for name in ("train", "test"):
        assign_words(folder / "w.safetensors", [folder / name / "features"], folder / name / "events.csv")
    train, test = (read_segments(folder / n / "captions.tsv", folder / n / "events.csv") for n in ("train", "test"))
    base = new_bert(folder / "base", [segment.text for segment in train] * 2)
    begin = time.process_time()
    train_video(
        folder / "train/captions.tsv", folder / "run", events=folder / "train/events.csv",
        words=folder / "w.safetensors", init=base, steps=steps, **OPTIONS["generated"], **SETTINGS,
    )  # fmt: skip
    seconds = time.process_time() - begin
    places = [words_of(segment.text) for segment in test]
    result = scores(VideoReader.load(folder / "run"), PROMPT, test, places, [words_of(s.text) for s in train])
    return {"segments": size, "visual words": len(words), "seconds": round(seconds), **result}


def words_of(text: str) -> tuple[str, str]:
    """The verb and the noun of a narration."""
    words = text.split()
    return next(word for word in words if word in VERBS), next(word for word in words if word in NOUNS)


def epic_segments(path: Path, kinds: set[str]) -> list[Segment]:
    """The captions of videos with the codes of the segments around each, without its own.

    The location of each is the caption before it.
    """
    videos: dict[str, list[dict[str, str]]] = collections.defaultdict(list)
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        row = dict(zip(header.split("\t"), line.split("\t"), strict=True))
        if row["splits"] in kinds:
            videos[row["video_id"]].append(row)
    segments = []
    for video, rows in videos.items():
        codes = [(f"verb:{row['verb_class']}", f"noun:{row['noun_class']}") for row in rows]
        for index, row in enumerate(rows):
            around = codes[max(0, index - NEIGHBORS) : index] + codes[index + 1 : index + 1 + NEIGHBORS]
            before = rows[index - 1]["narration"].lower() if index else ""
            listed = tuple(code for both in around for code in both)
            segments.append(Segment(video, row["narration"].lower(), listed, before))
    return segments


def run_epic(size: int, steps: int, folder: Path, data: Path) -> dict[str, Any]:
    """The scores after training on that many segments, of whole videos."""
    path = data / "epic100_segments.tsv"
    train, test = epic_segments(path, {"train", "source_val", "target_val"}), epic_segments(path, {"validation"})
    order = np.random.default_rng(1).permutation(sorted({segment.subject for segment in train})).tolist()
    rank = {video: number for number, video in enumerate(order)}
    train = sorted(train, key=lambda segment: rank[segment.subject])[:size]
    lines = [json.dumps({"subject": s.subject, "text": s.text, "codes": list(s.codes)}) for s in train]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    base = new_bert(folder / "base", [segment.text for segment in train])
    begin = time.process_time()
    train_video(folder / "train.jsonl", folder / "run", init=base, steps=steps, **OPTIONS["epic"], **SETTINGS)
    seconds = time.process_time() - begin
    reader = VideoReader.load(folder / "run")
    two = [segment for segment in test if len(segment.text.split()) == 2]
    known = [s for s in two if all(word in reader.tokenizer.vocabulary.index for word in s.text.split())]
    asked = [segment for segment in known if len(reader.codes.ids(segment.codes))]
    learned = [tuple(segment.text.split()) for segment in train if len(segment.text.split()) == 2]
    before = [(words[0], words[-1]) for words in (segment.location.split() or [""] for segment in asked)]
    result = scores(reader, EPIC_PROMPT, asked, [tuple(s.text.split()) for s in asked], learned, before)
    about = {"test captions": len(test), "of two words": len(two), "with known words": len(known)}
    return {"segments": len(train), **about, "seconds": round(seconds), **result}


def scores(
    reader: VideoReader,
    prompt: str,
    test: list[Segment],
    gold: list[tuple[str, ...]],
    train: list[tuple[str, ...]],
    before: list[tuple[str, ...]] | None = None,
) -> dict[str, Any]:
    """Alignment accuracy; the verb and the noun with codes, alone, by frequency, as before, with paired tests."""
    ids = [reader.codes.ids(segment.codes) for segment in test]
    chances = reader.word_chances(prompt, [NOTHING, *ids])
    index = reader.tokenizer.vocabulary.index
    result: dict[str, Any] = {"questions": len(test), "alignment": alignment(reader, test)}
    for gap, name in enumerate(("verb", "object")):
        places = np.array([index[words[gap]] for words in gold])
        of_gold = np.take_along_axis(chances[1:, gap], places[:, None], axis=1)
        ranks = 1 + (chances[1:, gap] > of_gold).sum(axis=1)
        alone = 1 + (chances[0, gap] > chances[0, gap][places][:, None]).sum(axis=1)
        often = [word for word, _ in collections.Counter(words[gap] for words in train).most_common()]
        frequent = np.array([often.index(words[gap]) + 1 if words[gap] in often else 10**6 for words in gold])
        for top in (1, 5):
            right = {"with codes": ranks <= top, "alone": alone <= top, "frequent": frequent <= top}
            if before is not None and top == 1:
                right["before"] = np.array([was[gap] == words[gap] for was, words in zip(before, gold, strict=True)])
            row: dict[str, Any] = {key: share(value) for key, value in right.items()}
            for other in list(right)[1:]:
                test_of = paired_test(right["with codes"].astype(float), right[other].astype(float))
                row[f"minus {other}"] = {
                    "difference": round(test_of.difference, 4),
                    "interval": [round(test_of.low, 4), round(test_of.high, 4)],
                    "p": test_of.p_value,
                }
            result[f"{name} top-{top}"] = row
    return result


def alignment(reader: VideoReader, test: list[Segment]) -> dict[str, Any]:
    """The accuracy on each segment, and on its text with the codes of the segment that is half of the test away."""
    texts = [reader.text_ids(segment.text) for segment in test]
    ids = [reader.codes.ids(segment.codes) for segment in test]
    half = len(test) // 2
    false = [number for number, segment in enumerate(test) if segment.text != test[number - half].text]
    true_pairs, false_pairs = [(texts[n], ids[n]) for n in false], [(texts[n], ids[n - half]) for n in false]
    right = np.concatenate([reader.alignment(true_pairs) >= 0.5, reader.alignment(false_pairs) < 0.5])
    return {**share(right), "pairs": len(right), "chance": 0.5}


def share(right: np.ndarray) -> dict[str, Any]:
    """An accuracy with its interval."""
    low, high = proportion_interval(int(right.sum()), len(right))
    return {"accuracy": round(float(right.mean()), 4), "interval": [round(low, 4), round(high, 4)]}


def main() -> None:
    """Runs what the result does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with `epic100_segments.tsv`; without it only generated")
    parser.add_argument("--only", choices=list(SIZES))
    parser.add_argument("--sizes", help="numbers of training segments, separated by commas")
    parser.add_argument("--steps", type=int, help="of the training, in place of the usual number")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    about, name, cells = begun("texts_with_codes")
    for kind in [arguments.only] if arguments.only else list(SIZES):
        if kind == "epic" and arguments.data is None:
            continue
        sizes = tuple(map(int, arguments.sizes.split(","))) if arguments.sizes else SIZES[kind]
        for size in sizes:
            steps = arguments.steps or STEPS[kind]
            key = f"{kind} {size}" + (f", {steps} steps" if arguments.steps else "")
            if key not in cells:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder)
                    cells[key] = (
                        run_generated(size, steps, path)
                        if kind == "generated"
                        else run_epic(size, steps, path, arguments.data)
                    )
                print(key, json.dumps(cells[key]), flush=True)
                write_result(name, {"machine": about, "steps": STEPS, "options": OPTIONS, "cells": cells})


if __name__ == "__main__":
    main()
