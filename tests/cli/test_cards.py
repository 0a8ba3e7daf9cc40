"""Model cards describe the model, with a header that the hub can read and commands that run."""

import dataclasses
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.card import CARD, LIBRARIES, with_additions
from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import WINDOWED
from tasks.task_samples import CONFIG, SPECS, TOKENIZER

TRAINING = {"examples": 1200, "dev_examples": 120, "learning_rate": 5e-5, "seed": 1}
PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "reranking": "text-classification",
    "choice": "multiple-choice",
    "tagging": "token-classification",
    "span": "question-answering",
    "similarity": "sentence-similarity",
    "selection": "sentence-similarity",
}
WITHOUT_TASK = ("similarity", "selection")  # in `transformers`, which has no task of vectors


def written(folder: Path, kind: str) -> Path:
    """A model folder of a kind of task, or of none."""
    model = untrained(CONFIG, seed=3)
    info = {"task": "pretraining", "objective": "mlm+nsp", "steps": 12000, "scores": {"held_out_mlm_loss": 3.25}}
    save_pretrained(folder / "base", model, TOKENIZER, ModelMetadata.from_dict(info))
    if kind == "base":
        return folder / "base"
    spec = SPECS[kind]
    head = task_for(spec).head
    tuned = load_for_task(load_any(folder / "base"), head, keep_head=False, seed=5).model
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict(), "training": TRAINING}
    info |= {"scores": {spec.metric: 0.75}, "trained_on": {"train": "sha256:77aa"}}
    save_pretrained(folder / "model", tuned, TOKENIZER, ModelMetadata.from_dict(info), trained=("pooler", head.part))
    return folder / "model"


def parts(folder: Path) -> tuple[dict, str]:
    """The header of a card as the hub reads it, and the text below."""
    card = ModelCard.load(folder / CARD)
    return card.data.to_dict(), card.text


@pytest.mark.parametrize("kind", ["base", *SPECS])
def test_the_commands_of_a_card_run_next_to_it(tmp_path, kind, monkeypatch, capsys, run, quiet_transformers):
    folder = written(tmp_path, kind)
    monkeypatch.chdir(folder)
    _, text = parts(folder)
    ours, *theirs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(ours, {})
    assert capsys.readouterr().out.startswith("[")
    assert len(theirs) == (kind != "base" and SPECS[kind].kind not in WITHOUT_TASK and "It also loads" in text)
    for code in theirs:
        exec(code, {})
        assert capsys.readouterr().out.startswith(("[", "tensor(", "(tensor("))
    command = re.search(r"```console\n\$ (.*)\n```", text)[1]
    typed, _, asked = command.rpartition(" | bertsmith ")
    stdin = subprocess.run(["sh", "-c", typed], capture_output=True, check=True).stdout if typed else b""
    result = run(*shlex.split(asked.removeprefix("bertsmith ")), stdin=stdin)
    assert (result.code, result.err) == (0, "")
    assert result.out


@pytest.mark.parametrize("kind", SPECS)
def test_the_card_of_a_task_model_lists_scores_labels_and_training(tmp_path, kind):
    folder, spec = written(tmp_path, kind), SPECS[kind]
    header, text = parts(folder)
    values = read_json(folder / "config.json")
    tags = ["bert", "bertsmith", *(["custom_code"] if "auto_map" in values else [])]
    if values["model_type"] == "bertsmith-only-bert":  # no other library, so none may be named
        assert header == {"library_name": "bertsmith", "tags": tags}
    else:
        assert header == {
            "library_name": "sentence-transformers" if spec.kind == "similarity" else "transformers",
            "pipeline_tag": PIPELINES[spec.kind],
            "tags": tags,
        }
    assert f"| {spec.metric} | 0.7500 |" in text
    assert "On 120 labelled examples" in text
    assert "- examples: 1,200\n" in text
    assert "`sha256:77aa`" in text
    assert all(f"`{label}`" in text for label in spec.labels)
    by_windows = (
        spec.kind in ("tagging", "span", "extraction", "entities", "entities-by-name")
        or spec.settings.long_text in WINDOWED
    )
    assert (f"Reads up to {spec.settings.max_length} tokens" in text, "in windows" in text) == (True, by_windows)


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({}, "labelled examples.\n"),
        (
            {"kept": "the best evaluation"},
            ", which were also used to choose the best evaluation; on others it may do worse.",
        ),
        ({"trainings": 3}, ", which were also used to choose the best seed; on"),
        ({"kept": "the best evaluation", "trainings": 3}, "to choose the best evaluation and the best seed; on"),
        ({"steps": 9, "best_step": 6}, "to choose the best evaluation; on"),
        ({"trainings": 3, "average_of": 3}, "to choose between the seeds and their average; on"),
    ],
)
def test_a_card_says_only_what_the_dev_examples_chose(tmp_path, training, said):
    folder = written(tmp_path, "single")
    loaded = load_for_task(load_any(folder), task_for(SPECS["single"]).head, keep_head=True)
    info = {"task": "classification", "labels": ["a", "b"], "scores": {"accuracy": 0.5}, "training": training}
    save_pretrained(folder, loaded.model, TOKENIZER, ModelMetadata.from_dict(info), replace=True)
    assert said in parts(folder)[1]


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("answer", "BERT for question answering, fine-tuned on the task squad"),
        ("tags", "BERT for named entity recognition"),
        ("single", "BERT for text classification, fine-tuned on the task sentiment"),
        ("number", "BERT for scoring texts"),
        ("choice", "BERT for multiple choice"),
        ("scored vectors", "BERT for sentence similarity"),
    ],
)
def test_the_title_of_a_card_says_what_the_model_does(tmp_path, kind, title):
    assert f"# {title}\n" in parts(written(tmp_path, kind))[1] + "\n"


def test_a_card_does_not_hide_that_nothing_was_learned(tmp_path):
    model = load_for_task(load_any(written(tmp_path, "single")), task_for(SPECS["single"]).head, keep_head=True).model
    info = {
        "task": "classification",
        "labels": ["a", "b"],
        "scores": {"accuracy": 0.5},
        "training": {"collapsed": True},
    }
    save_pretrained(
        tmp_path / "again", model, TOKENIZER, ModelMetadata.from_dict(info), trained=("pooler", "classifier")
    )
    assert "it has learned nothing" in parts(tmp_path / "again")[1]
    assert "learned nothing" not in parts(tmp_path / "model")[1]


def test_the_card_of_a_pretrained_model_describes_its_training(tmp_path):
    header, text = parts(written(tmp_path, "base"))
    assert header["pipeline_tag"] == "fill-mask"
    assert "| held_out_mlm_loss | 3.2500 |" in text
    assert "- steps: 12,000\n- objective: mlm+nsp" in text
    assert "2 layers, width 32, 4 attention heads" in text


def test_the_card_of_a_left_to_right_model_shows_what_it_can_do(tmp_path):
    model = untrained(dataclasses.replace(CONFIG, is_causal=True), seed=3)
    info = {"task": "pretraining", "objective": "left-to-right"}
    save_pretrained(tmp_path / "base", model, TOKENIZER, ModelMetadata.from_dict(info))
    header, text = parts(tmp_path / "base")
    assert header["pipeline_tag"] == "feature-extraction"
    assert "bertsmith fill" not in text
    assert "fill(" not in text
    assert "bertsmith complete --model ." in text
    assert "- Direction: left to right" in text


def test_users_may_extend_a_card_but_not_change_the_weights(tmp_path):
    folder = written(tmp_path, "single")
    (folder / CARD).write_text("licence: CC0\n", encoding="utf-8")
    read_model_folder(folder, verify=True)
    with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt"):
        read_model_folder(folder, verify=True)


def test_a_card_names_the_other_tools_that_read_the_files(tmp_path):
    folder = written(tmp_path, "base")
    convert(folder, tmp_path / "google", to="google")
    header, text = parts(tmp_path / "google")
    assert header["library_name"] == "tf"
    assert LIBRARIES["tf"] in text
    assert LIBRARIES["transformers"] not in text


def test_the_card_of_an_export_shows_what_runs_there(tmp_path, run, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    folder = written(tmp_path, "single")
    run("convert", folder, tmp_path / "onnx", "--to", "onnx").succeeds()
    monkeypatch.chdir(tmp_path / "onnx")
    header, text = parts(tmp_path / "onnx")
    assert header["library_name"] == "onnx"
    assert "bertsmith predict" not in text
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path / "onnx")
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], {})
    assert capsys.readouterr().out == "['input_ids', 'attention_mask', 'token_type_ids'] ['logits']\n"


def test_additions_follow_a_model_through_other_formats(tmp_path, run):
    folder = written(tmp_path, "single")
    card = (folder / CARD).read_text(encoding="utf-8").replace("tags:\n", "license: cc0-1.0\nlanguage:\n- en\ntags:\n")
    (folder / CARD).write_text(card + "\nIt is meant for my mails.\n", encoding="utf-8")
    for source, target, library in (("model", "google", "tf"), ("google", "huggingface", "transformers")):
        run("convert", tmp_path / source, tmp_path / target, "--to", target).succeeds()
        header, text = parts(tmp_path / target)
        assert (header["library_name"], header["license"], header["language"]) == (library, "cc0-1.0", ["en"])
        assert LIBRARIES[library] in text
        assert text.endswith("It is meant for my mails.\n")
        assert text.count("## What this card does not know") == 1


def test_a_card_written_by_someone_else_is_kept(tmp_path, run):
    folder = written(tmp_path, "single")
    (folder / CARD).write_text("---\nlicense: mit\n---\n# Theirs\n", encoding="utf-8")
    run("convert", folder, tmp_path / "same", "--to", "huggingface").succeeds()
    assert (tmp_path / "same" / CARD).read_bytes() == (folder / CARD).read_bytes()
    told = run("convert", folder, tmp_path / "other", "--to", "google")
    assert "README.md of the source is not a bertsmith model card" in told.out
    assert parts(tmp_path / "other")[0]["library_name"] == "tf"


def test_user_additions_are_copied_to_another_folder(tmp_path, run):
    folder = written(tmp_path, "single")
    with open(folder / CARD, "a", encoding="utf-8") as file:
        file.write("The licence is CC0.\n")
    run("convert", folder, tmp_path / "again", "--to", "huggingface").succeeds()
    assert (tmp_path / "again" / CARD).read_bytes() == (folder / CARD).read_bytes()
    read_model_folder(tmp_path / "again", verify=True)


def test_languages_are_in_the_header_once(tmp_path: Path) -> None:
    shares = {"en": 0.6, "th": 0.3, "a-folder": 0.1}
    metadata = ModelMetadata.from_dict({"task": "pretraining", "training": {"languages": shares}})
    save_pretrained(tmp_path / "base", untrained(CONFIG, seed=3), TOKENIZER, metadata)
    card = (tmp_path / "base" / CARD).read_text(encoding="utf-8")
    assert ModelCard(card).data.language == ["en", "th"]
    assert "- languages: en 60.0 %, th 30.0 %, a-folder 10.0 %" in card
    by_hand = card.replace("language:\n- en\n- th\n", "language:\n- de\nlicense: mit\n")
    joined = with_additions(card, by_hand)
    data = ModelCard(joined).data
    assert (data.language, data.license) == (["en", "th"], "mit")


def test_a_licence_and_the_texts_are_in_the_card_and_stay_as_people_change_them(tmp_path):
    metadata = ModelMetadata(
        task="pretraining", licence="apache-2.0", sources=tuple(f"`{n}.txt`, 9 words" for n in range(25))
    )
    save_pretrained(tmp_path / "model", untrained(CONFIG, seed=3), TOKENIZER, metadata)
    header, text = parts(tmp_path / "model")
    assert header["license"] == "apache-2.0"
    assert "## Text\n\n- `0.txt`, 9 words\n" in text
    assert "- and 5 more files, all of them in `bertsmith.json`" in text
    assert "The language, what the model should" in text
    again = load_any(tmp_path / "model").metadata
    assert (again.licence, again.sources) == ("apache-2.0", metadata.sources)
    card = (tmp_path / "model" / CARD).read_text()
    assert sorted(with_additions(card, card).split("\n")) == sorted(card.split("\n"))
    changed = card.replace('license: "apache-2.0"', "license: mit")
    assert with_additions(card, changed).count("license:") == 1
    assert "license: mit" in with_additions(card, changed)
    with pytest.raises(InputError, match="a list of strings as sources"):
        ModelMetadata.from_dict({"sources": "a.txt"})
