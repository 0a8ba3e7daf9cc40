"""The commands for features as words, and for texts with codes."""

import json
from pathlib import Path

from video.sample_videos import write_base_model, write_videos

TEXT = "now let me show you how to [MASK] the [MASK]"


def test_features_become_words_and_a_model_of_texts_with_codes_answers(run, tmp_path: Path) -> None:
    features, captions = write_videos(tmp_path, videos=8)
    words, events, out = (tmp_path / name for name in ("words.safetensors", "events.csv", "run"))
    result = run("codes", "cluster", features, "--depth", 1, "--branching", 4, "--out", words)
    assert result.out.startswith("4 words of width 8, for ")
    result = run("codes", "assign", features, "--words", words, "--out", events)
    count = len(events.read_text(encoding="utf-8").splitlines()) - 1
    assert result.out == f"{count} events\nevents: {events}\n"
    base = write_base_model(tmp_path / "base")
    segments = ("--events", events)
    typed = ("codes", "train-video", captions, *segments, "--words", words, "--init", base, "--device", "cpu")
    run(*typed, "--steps", 4, "--rows-per-step", 8, "--out", out).succeeds("held_out_text_alone_loss")
    run("codes", "train-video", "--out", out, "--resume").succeeds()

    model = ("--model", out, "--device", "cpu")
    lines = run("codes", "fill", TEXT, *model, "--codes", "0 1", "--top", 2).out.splitlines()
    assert lines[0] == "codes: 0 1"
    assert [line.split(":")[0] for line in lines[1:]] == [
        f"gap {gap} {name}" for gap in (1, 2) for name in ("with codes", "without")
    ]
    result = run("codes", "fill", TEXT, *model, "--segments", captions, *segments, "--json")
    assert [len(json.loads(line)["gaps"]) for line in result.out.splitlines()] == [2] * 40
    scores = json.loads(run("codes", "match", captions, *segments, *model, "--json").out)
    assert (scores["segments"], set(scores["codes_of_text"])) == (40, {"recall@1", "recall@5", "recall@10", "mrr"})
    table = run("codes", "match", captions, *segments, *model).out
    assert "chance" in table
    matches = run("codes", "match", captions, *segments, *model, "--text", "cut the pan", "--top", 3).out.splitlines()
    assert [line.count("\t") for line in matches] == [2, 2, 2]
    following = run("codes", "next", "0 1", *model, "--top", 4).out.splitlines()
    assert sorted(line.split("\t")[0] for line in following) == ["0", "1", "2", "3"]
    result = run("codes", "features", captions, *segments, *model, "--out", tmp_path / "x.npy")
    assert result.out == f"40 vectors of width 64\nvectors: {tmp_path / 'x.npy'}\n"


def test_what_is_wrong_is_said_in_one_line(run, tmp_path: Path) -> None:
    features, captions = write_videos(tmp_path, videos=2)
    for typed, message in (
        (("codes", "cluster", tmp_path / "none.npy", "--out", tmp_path / "w.safetensors"), "none.npy"),
        (("codes", "cluster", features, "--out", tmp_path / "w.txt"), "ends in .safetensors"),
        (("codes", "train-video", captions, "--out", tmp_path / "run"), "found neither"),
        (("codes", "train-video", "--out", tmp_path / "run"), "expected a file of segments"),
        (("codes", "fill", TEXT, "--model", "starter", "--codes", "0"), "a model of texts with codes"),
        (("codes", "fill", TEXT, "--model", "starter"), "codes or --segments"),
        (("codes", "match", captions, "--model", "starter", "--text", "a", "--codes", "b"), "a text or codes"),
    ):
        run(*typed).refuses(message)
