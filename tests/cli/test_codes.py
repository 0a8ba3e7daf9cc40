"""The commands codes build, train, predict, anomalies and embed."""

import json
from pathlib import Path

import pytest

import bertsmith
from codes.sample_events import write_events, write_tree
from codes.test_answers import KINDS, events


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events, a tree and a model of them."""
    folder = tmp_path_factory.mktemp("answers")
    write_tree(folder / "tree.csv")
    bertsmith.build_codes([write_events(folder / "events.csv")], folder / "codes")
    bertsmith.train_codes(folder / "codes", folder / "recommends", **KINDS, width=32, steps=4, device="cpu")
    return folder


def test_the_commands_print_what_the_library_returns(run, folder: Path, tmp_path: Path) -> None:
    built = run("codes", "build", folder / "events.csv", "--tree", folder / "tree.csv", "--out", tmp_path / "codes")
    assert "40 subjects, 10 with one visit; 100 visits" in built.out
    assert "1 not in the tree" in built.out
    trained = run(
        "codes", "train", tmp_path / "codes", "--given", "diagnosis", "--wanted", "medication", "--out",
        tmp_path / "run", "--width", 8, "--heads", 2, "--steps", 4, "--device", "cpu",
    )  # fmt: skip
    assert trained.code == 0, trained.err
    assert "most frequent" in trained.out
    assert "F1 minus that of the best baseline" in trained.out
    assert trained.out.endswith(f"model: {tmp_path / 'run' / 'model'}\n")
    model = folder / "recommends"
    path = events(
        tmp_path / "a.csv", ["a,1,cold,diagnosis", "a,2,gout,diagnosis", "b,1,new,diagnosis", "c,1,tea,medication"]
    )
    (first, *_) = bertsmith.predict_codes([path], model, top=1, device="cpu")
    predicted = run("codes", "predict", path, "--model", model, "--top", 1, "--device", "cpu")
    code = first.codes[0]
    assert predicted.out.splitlines()[0] == f"a\t{code.code}\tmedication\t{code.probability:.4f}"
    assert "1 code not in the vocabulary" in predicted.err
    assert "1 subject with no codes that the model reads" in predicted.err, "of c only the wanted code is known"
    assert "1 subject with no earlier visits" in predicted.err
    lines = run("codes", "predict", path, "--model", model, "--top", 1, "--json", "--device", "cpu").out.splitlines()
    assert json.loads(lines[0]) == json.loads(json.dumps(first.to_dict()))
    anomalies = run("codes", "anomalies", path, "--model", model, "--device", "cpu")
    assert anomalies.out.splitlines()[2] == "b\t1\t-\t-"
    embedded = run("codes", "embed", path, "--model", model, "--out", tmp_path / "v", "--device", "cpu")
    assert embedded.out == f"3 vectors of width 64: {tmp_path / 'v'}\n"
    run("codes", "train", "--out", tmp_path / "run", "--resume").succeeds()
