"""`bertsmith plan`."""

import json


def test_a_plan_is_printed_and_written_as_json(run, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(
        "\n\n".join("the man went to the store .\nhe bought a dog .\n" for _ in range(80)), encoding="utf-8"
    )
    run("vocab", text, "--size", 60, "--out", tmp_path / "vocab.txt").succeeds()
    run("corpus", text, "--vocab", tmp_path / "vocab.txt", "--out", tmp_path / "corpus").succeeds()
    shared = ("plan", tmp_path / "corpus", "--size", "tiny", "--device", "a100", "--steps", 30)
    shown = run(*shared)
    assert (shown.code, shown.out.splitlines()[0].split(":")[0]) == (0, "model")
    assert "estimate, 35% of the published peak of a100" in shown.err
    assert "run: 30 steps" in shown.out
    result = json.loads(run(*shared, "--json").out)
    assert (result["steps"], result["rates"]["device"], result["precision"]) == (30, "a100", "bf16")
    refused = run("plan", tmp_path, "--size", "tiny", "--device", "a100")
    assert refused.code == 1
    assert refused.err.startswith("bertsmith: expected")
    assert len(refused.err.splitlines()) == 1
