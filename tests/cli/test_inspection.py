"""inspect, --verify, and what is checked whenever a model is loaded."""

import inspect
import json
from pathlib import Path

import pytest

import bertsmith
from bertsmith.app.cli.app import application
from bertsmith.base.core.errors import CheckpointError, VocabularyError


def flip_a_bit(path: Path) -> None:
    """Changes the last byte of a file, which in a file of weights is part of a number."""
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(bytes(data))


def swap_two_pieces(folder: Path) -> None:
    """Swaps two pieces in all files of the vocabulary."""
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    first, second = lines.index("man"), lines.index("store")
    lines[first], lines[second] = lines[second], lines[first]
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if (folder / "tokenizer.json").exists():
        described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        ids = described["model"]["vocab"]
        ids["man"], ids["store"] = ids["store"], ids["man"]
        (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")


def test_a_model_folder_says_what_it_is(run, model: Path) -> None:
    result = run("inspect", model).succeeds()
    for words in (
        "Hugging Face folder, BERT pre-trained; heads: mlm, nsp",
        "num_hidden_layers 2, hidden_size 32, num_attention_heads 2",
        "text: lower-cased, 35 WordPieces",
        "card: BERT, pre-trained",
        "stored as: float32",
        "model.safetensors (",
        "digests: verified",
    ):
        assert words in result.out
    report = json.loads(run("inspect", model, "--json").out)
    assert (report["digests"], report["altered"], report["task"]) == ("verified", [], "pretraining")
    assert report["sizes"]["parameters"] == sum(tensor.numel() for tensor in _tensors(model))
    assert report["files"]["vocab.txt"] == (model / "vocab.txt").stat().st_size
    assert bertsmith.inspect_model(model).digests == "verified"


def _tensors(model: Path) -> list:
    from bertsmith.models.checkpoints.load import load_any

    return list(load_any(model).tensors.values())


def test_layers_kept_in_higher_precision_are_listed(run, model: Path) -> None:
    described = json.loads((model / "bertsmith.json").read_text(encoding="utf-8"))
    described["int8"] = {"kept": ["layers.1.output"]}
    (model / "bertsmith.json").write_text(json.dumps(described), encoding="utf-8")
    assert "int8 keeps in higher precision: layers.1.output" in run("inspect", model).out


def test_a_folder_of_another_tool_has_no_digests(run, model: Path) -> None:
    (model / "bertsmith.json").unlink()
    result = run("inspect", model).succeeds()
    assert "digests: none: no bertsmith.json records them" in result.out
    assert "written by another tool as BertForPreTraining" in result.out
    run("fill", "--model", model, "--verify", "the [MASK]").refuses("expected digests")


def test_a_model_to_serve_is_verified_under_the_path_that_is_loaded(run, tmp_path: Path) -> None:
    for source in (tmp_path / "x=y/model", f"mine={tmp_path}/x=y/model"):
        assert f"'{tmp_path}/x=y/model'" in run("serve", "--model", source, "--verify").err


def test_a_flipped_bit_in_the_weights_is_found_by_inspect_and_verify(run, model: Path) -> None:
    run("fill", "--model", model, "--verify", "the [MASK]").succeeds()
    flip_a_bit(model / "model.safetensors")
    result = run("inspect", model)
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "digests: different: model.safetensors" in result.out
    assert run("inspect", model, "--json").code == 1
    assert run("fill", "--model", model, "--verify", "the [MASK]").err == result.err
    assert result.err == (
        f"bertsmith: expected the files that '{model / 'bertsmith.json'}' describes; found different or missing ones: "
        "model.safetensors; copy the folder again, or remove bertsmith.json if you changed them\n"
    )
    run("fill", "--model", model, "the [MASK]").succeeds()
    run("fill", "--model", model, "--verify", "the [MASK]").refuses("different or missing ones: model.safetensors")
    with pytest.raises(CheckpointError, match=r"different or missing ones: model\.safetensors"):
        bertsmith.load(model, verify=True)


def test_weights_that_cannot_be_read_are_reported_by_their_digest(run, model: Path) -> None:
    data = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(data[: len(data) // 2])
    run("inspect", model).refuses("different or missing ones: model.safetensors")


@pytest.mark.parametrize("to", ["huggingface", "google"])
def test_two_swapped_pieces_are_always_found(run, tmp_path: Path, model: Path, to: str) -> None:
    folder = tmp_path / "other"
    run("convert", model, folder, "--to", to).succeeds()
    swap_two_pieces(folder)
    typed = [("fill", "--model", folder, "the [MASK]"), ("embed", folder / "vocab.txt", "--model", folder, "--out")]
    for command in (typed[0], (*typed[1], tmp_path / "x.npy")):
        run(*command).refuses("found different pieces, or the same in another order")
    with pytest.raises(VocabularyError, match="another order"):
        bertsmith.load(folder)


def test_the_tokenizer_of_a_model_is_checked_too(run, model: Path) -> None:
    swap_two_pieces(model)
    run("tokenize", "--model", model, stdin=b"the man\n").refuses("another order")


def test_every_command_that_loads_a_model_has_the_option() -> None:
    from bertsmith.app.cli.commands import COMMANDS

    with_model = {"tokenize", "inputs", "corpus", "fill", "next", "finetune", "evaluate", "quantize", "predict",
                  "embed", "features", "index", "search", "senses", "serve", "pretrain", "convert", "ask", "rank",
                  "contexts", "complete", "perplexity", "adapt", "distill",
                  "distill corpus", "vectors static", "translate", "plan", "memory answer", "codes predict",
                  "codes anomalies", "codes embed",
                  "codes train-video", "codes fill", "codes match", "codes next", "codes features",
                  "disambiguate", "classify", "audit", "upgrade", "drift"}  # fmt: skip
    result = set()
    for command in COMMANDS:
        function = next(
            registered
            for registered in application(command.name).registered_commands
            if registered.name == command.name
        ).callback
        assert function is not None
        if "verify" in inspect.signature(function).parameters:
            result.add(command.name)
    assert result == with_model


def test_a_list_of_pieces_that_was_cut_short_is_found_although_another_file_completes_it(run, model: Path) -> None:
    lines = (model / "vocab.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (model / "vocab.txt").write_text("".join(lines[:-1]), encoding="utf-8")
    run("fill", "--model", model, "the [MASK]", "--device", "cpu").refuses("vocab")


def test_verify_knows_the_names_of_served_models_and_the_starting_model(run, tmp_path: Path, model: Path) -> None:
    flip_a_bit(model / "model.safetensors")
    for typed in (
        ("serve", "--model", f"mine={model}", "--port", 0),
        ("pretrain", tmp_path / "absent", "--init", model, "--steps", 1, "--out", tmp_path / "run"),
        ("convert", model, tmp_path / "new", "--to", "google"),
    ):
        run(*typed, "--verify").refuses("different or missing ones: model.safetensors")
