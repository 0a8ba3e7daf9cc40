"""Continued pre-training on text of the task, before fine-tuning: what it reads, what it leaves, how it resumes."""

import json
from pathlib import Path
from typing import Any

import pytest

from adaptation.domain_samples import kill_and_resume, weights, words, write_base
from bertsmith import finetune
from bertsmith.app.library import finetuning
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.adaptation import further_pretraining, task_text
from bertsmith.recipes.adaptation.task_text import documents_of
from bertsmith.recipes.finetuning.linear_start import LinearStart
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.text.corpus.shards import Corpus
from tasks.architecture_samples import write_base_model
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of
from written_files import file_with

ONCE: dict[str, Any] = {"seeds": 1, "epochs": 1, "batch_size": 4, "max_length": 16, "continue_steps": 2}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Unlabelled text of ten documents."""
    return file_with(tmp_path / "text.txt", "\n\n".join(f"{words(9, n)} .\n{words(7, n + 50)} ." for n in range(10)))


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Twelve labelled texts."""
    path = tmp_path / "train.csv"
    lines = [f"{words(12, n)} {'good' if n % 2 else 'bad'},{'yes' if n % 2 else 'no'}" for n in range(12)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_table_in_memory_is_text_and_that_of_the_training_is_read_as_its_examples(base: Path, tmp_path: Path) -> None:
    train = [{"text": f"{words(12, n)} good", "label": "yes" if n % 2 else "no"} for n in range(12)]
    texts = [{"text": f"{words(12, n)} ."} for n in range(12)]
    for name, table, read_as in (("same", train, "examples of classification"), ("text", texts, "text")):
        finetune(base, "classification", tmp_path / name, train=train, continue_on=table, **ONCE)
        record = json.loads((tmp_path / name / "continued" / "text.json").read_text(encoding="utf-8"))
        assert record["read_as"] == read_as
        asked = (tmp_path / name / "request.toml").read_text(encoding="utf-8")
        assert 'continue_on = "a table in memory of 12 rows, sha256:' in asked
    for table, message in (
        ([{"body": "a", "title": "b"}] * 3, "expected a column 'text' in line 1 of 'continue_on'"),
        ([{"text": "a"}], "one row, in the table 'continue_on'; found 1 token"),
    ):
        with pytest.raises(InputError, match=message):
            finetune(base, "classification", tmp_path / "refused", train=train, continue_on=table, **ONCE)


def test_fine_tuning_starts_from_the_continued_model_and_its_cost_is_reported(
    base: Path, text: Path, labelled: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = finetune(base, "classification", out, train=labelled, continue_on=text, **ONCE)
    continued = out / "continued" / "run" / "model"
    metadata = load_any(continued).metadata
    assert (metadata.task, metadata.objective, metadata.steps) == ("pretraining", "mlm", 2)
    assert load_any(out / "model").metadata.training["base_model"] == base.name
    assert result.report["pretraining"]["steps"] == 2
    assert result.report["pretraining"]["seconds"] > 0
    # The same by hand.
    options = {name: value for name, value in ONCE.items() if name != "continue_steps"}
    finetune(continued, "classification", tmp_path / "hand", train=labelled, **options)
    assert weights(out / "model") == weights(tmp_path / "hand" / "model")
    assert set(load_any(continued).parts) == {"pooler", "mlm"}, "the pooler of the base model is kept"
    corpus = Corpus.open(out / "continued" / "corpus")
    assert corpus.vocabulary.digest == TOKENIZER.vocabulary.digest
    assert {corpus.document_source(0)} == {str(text)}


def test_the_training_file_itself_is_read_without_its_labels(base: Path, labelled: Path, tmp_path: Path) -> None:
    finetune(base, "classification", tmp_path / "run", train=labelled, continue_on=labelled, **ONCE)
    corpus = Corpus.open(tmp_path / "run" / "continued" / "corpus")
    held_out = corpus.held_out()
    texts = [
        TOKENIZER.decode(part.document_tokens(number))
        for part in (corpus, held_out)
        for number in range(len(part.sentence_counts))
    ]
    assert sorted(texts) == sorted(f"{words(12, n)} {'good' if n % 2 else 'bad'}" for n in range(12))


@pytest.mark.parametrize("kind", SPECS)
def test_every_kind_of_example_becomes_documents(kind: str) -> None:
    examples = examples_of(kind, 8)
    documents = list(documents_of([*examples, *examples], "file"))
    joined = " ".join(sentence for document in documents for sentence in document.sentences)
    for example in examples:
        for part in ("first", "second", "context", "question"):
            assert " ".join((getattr(example, part, None) or "").split()) in joined
        assert all(ending in joined for ending in getattr(example, "endings", ()))
        assert " ".join(getattr(example, "words", ())) in joined
    assert len({tuple(document.sentences) for document in documents}) == len(documents), "each text once"


def test_the_examples_are_encoded_once_and_the_probe_reads_the_continued_model(
    base: Path, text: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, probed = [], []
    encode, best_reads = ClassificationTask.encode, LinearStart.best_reads

    def counted_encode(task: ClassificationTask, *arguments: Any, **options: Any) -> Any:
        encoded.append(options.get("training", False))
        return encode(task, *arguments, **options)

    def counted_probe(start: LinearStart, *arguments: Any, **options: Any) -> str:
        probed.append(start._frozen.folder.path)
        return best_reads(start, *arguments, **options)

    monkeypatch.setattr(ClassificationTask, "encode", counted_encode)
    monkeypatch.setattr(LinearStart, "best_reads", counted_probe)
    options = {**ONCE, "recipe": "auto", "keep": "best", "baselines": False}
    finetune(base, "classification", tmp_path / "run", train=labelled, continue_on=text, **options)
    assert encoded == [True, False], "the training and the dev examples"
    assert probed == [tmp_path / "run" / "continued" / "run" / "model"]


def test_a_run_that_was_killed_anywhere_ends_like_one_that_was_not(
    base: Path, text: Path, labelled: Path, tmp_path: Path
) -> None:
    def run(name: str, **options: Any) -> None:
        finetune(base, "classification", tmp_path / name, train=labelled, continue_on=text, **ONCE, **options)

    run("straight")
    for module, name in (
        (task_text, "build_corpus"),
        (further_pretraining, "pretrain"),
        (finetuning, "run_finetuning"),
    ):
        kill_and_resume(run, name, module, name)
        for folder in ("continued/run/model", "model"):
            assert weights(tmp_path / name / folder) == weights(tmp_path / "straight" / folder), name
    run("straight", resume=True)
    with pytest.raises(RunError, match="give `continue_on` again"):
        finetune(base, "classification", tmp_path / "straight", train=labelled, resume=True, seeds=1)
    text.write_text(text.read_text() + "it was .\n", encoding="utf-8")
    with pytest.raises(RunError, match="found other digests; resume with the original ones"):
        run("straight", resume=True)


def test_a_missing_head_is_new_and_characters_outside_the_vocabulary_are_reported(
    tmp_path: Path, labelled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    model = ModelMetadata(task="pretraining")
    save_pretrained(tmp_path / "encoder", untrained(CONFIG, 3), TOKENIZER, model, trained=("pooler",))
    text = file_with(tmp_path / "text.txt", f"{words(70)} xyz zyx .\n")
    finetune(tmp_path / "encoder", "classification", tmp_path / "run", train=labelled, continue_on=text, **ONCE)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("missing from the initial model, so randomly initialized: mlm") == 1
    assert sum(f"73 tokens of '{text}': 1.00 tokens for each word, 2.74% of them [UNK]" in line for line in lines) == 1
    assert sum("are [UNK]: the vocabulary of the model does not fit this text" in line for line in lines) == 1


def test_text_that_cannot_be_continued_on_is_refused_before_anything_is_trained(
    base: Path, text: Path, labelled: Path, tmp_path: Path
) -> None:
    def refused(match: str, kind: type[BertsmithError], on: Path, model: Path = base, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            finetune(model, "classification", tmp_path / "run", train=labelled, continue_on=on, **{**ONCE, **options})
        assert not (tmp_path / "run").exists()

    (tmp_path / "short.txt").write_text("the film was it .\n", encoding="utf-8")
    (tmp_path / "other.csv").write_text("text\nthe film\n", encoding="utf-8")
    refused("at least 64 tokens, one row.*found 5 tokens", InputError, tmp_path / "short.txt")
    refused("found the table", InputError, tmp_path / "other.csv")
    refused("no such file|nothing there", InputError, tmp_path / "nothing.txt")
    refused("found both", ConfigError, text, continue_minutes=1.0)
    few = {"continue_minutes": 1e-4, "continue_steps": None}
    refused("with `continue_minutes`, or give `continue_steps` instead", ConfigError, text, **few)
    refused("continue_steps must be above 0", ConfigError, text, continue_steps=0)
    refused(
        "a tokenizer for which the space before a sentence makes no difference",
        ConfigError,
        text,
        model=Path(write_base_model(tmp_path / "roberta", "roberta")),
    )
    with pytest.raises(ConfigError, match="`continue_minutes` needs `continue_on`"):
        finetune(base, "classification", tmp_path / "run", train=labelled, continue_minutes=1.0)


def test_it_works_for_a_tagger(base: Path, tmp_path: Path, text: Path) -> None:
    (tmp_path / "tags.conll").write_text("anna B-PER\nwas O\nin O\n\n" * 6, encoding="utf-8")
    result = finetune(base, "ner", tmp_path / "run", train=tmp_path / "tags.conll", continue_on=text, **ONCE)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["pretraining"] == result.report["pretraining"]
    assert result.report["pretraining"]["steps"] == 2
