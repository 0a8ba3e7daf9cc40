"""The commands memory train and memory answer."""

import json
import re
from pathlib import Path

import bertsmith
from memory.sample_stories import write_stories

FACTS = ["Ann went to the office.", "John went to the garden."]


def test_a_model_is_trained_on_stories_and_answers_typed_questions_and_lines(run, tmp_path: Path) -> None:
    stories, out = write_stories(tmp_path / "stories.txt", 20), tmp_path / "run"
    trained = run("memory", "train", stories, "--out", out, "--steps", 6, "--width", 6, "--device", "cpu").succeeds()
    assert "held_out_accuracy" in trained.out
    assert trained.out.endswith(f"model: {out / 'model'}\n")

    (tmp_path / "facts.txt").write_text("\n\n".join(FACTS) + "\n", encoding="utf-8")
    typed = run("memory", "answer", "--model", out, tmp_path / "facts.txt", "Where is Ann?", "--device", "cpu")
    record = {"facts": FACTS, "question": "Where is Ann?"}
    (expected,) = bertsmith.answer_from_memory(out, stories=[record], device="cpu")
    assert typed.out == f"{expected.answer}\t{expected.probability:.4f}\n"
    lines = f"{json.dumps(record)}\n\n{json.dumps({**record, 'question': 'Where is our dear John?'})}\n".encode()
    result = run("memory", "answer", "--model", out, "--json", "--device", "cpu", stdin=lines)
    first, second = (json.loads(line) for line in result.out.splitlines())
    assert first == json.loads(json.dumps(expected.to_dict()))
    assert second["unknown_words"] == 2
    assert result.err == (
        "bertsmith: 2 words not in the training stories or too rare there, read as unknown: 'our', 'dear'\n"
    )
    long = json.dumps({**record, "facts": [*FACTS * 26]})
    result = run("memory", "answer", "--model", out, "--device", "cpu", stdin=f"{long}\n".encode() * 70)
    assert result.out.count("\n") == 70
    assert result.err == "warning: the stories: 70 questions about more than 50 facts; only the last ones are read\n"
    run("memory", "train", "--out", out, "--resume").succeeds()


def test_what_is_wrong_is_said_in_one_line(run, tmp_path: Path) -> None:
    stories, out = write_stories(tmp_path / "stories.txt"), tmp_path / "run"
    run("memory", "train", stories, "--out", out, "--steps", 2, "--device", "cpu").succeeds()
    for typed, stdin, message in (
        (("memory", "answer", "--model", out, stories), b"", "facts and a question"),
        (("memory", "answer", "--model", out), b'{"facts": ["a"]}\n', "a text as question in line 1 of stdin"),
        (("memory", "answer", "--model", out), b"Where?\n", "JSON in line 1 of stdin"),
        (("memory", "answer", "--model", "starter"), b"{}\n", "the configuration of a memory network"),
        (("memory", "train", stories, "--out", out), b"", "--resume"),
        (("predict", "--model", out), b"Where?\n", "found a memory network; use it with `bertsmith memory answer`"),
    ):
        run(*typed, stdin=stdin).refuses(message)
    inspected = run("inspect", out / "model").out
    assert "model folder, memory network for memory; heads: none\n" in inspected
    assert re.search(r"^text: lower-cased, \d+ words$", inspected, re.MULTILINE)
    assert "digests: verified" in inspected
