"""A whole comparison: its cells, its report, what is kept, and what a resumed one does."""

import json
from pathlib import Path

import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError
from bertsmith.base.storage.files import digest_bytes, digest_file, read_json
from bertsmith.inference.word_vectors.formats import write_word_vectors
from bertsmith.inference.word_vectors.training import train_word_vectors
from bertsmith.recipes.comparison import fitting, networks, systems, word_vector_training
from bertsmith.recipes.comparison.fitting import CellKey, all_cells, lines_of
from bertsmith.recipes.comparison.report import table_of
from bertsmith.recipes.comparison.run import compare_systems
from bertsmith.tasks.metrics.uncertainty import proportion_interval
from bertsmith.tasks.task_data.task_files import read_task
from comparison.ladder_samples import FEW, TOKENS, shorten, write_labelled, write_text
from reports.page import Page
from tasks.task_samples import write_base_model

pytestmark = pytest.mark.usefixtures("drawn_charts")

CHEAP = ["one-hot", "tf-idf"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    shorten(monkeypatch)
    return {
        "task": write_labelled(tmp_path / "train.tsv", 48),
        "dev": write_labelled(tmp_path / "dev.tsv", 40, seed=1),
        "corpus": [write_text(tmp_path / "text.txt")],
        "tokens": TOKENS,
        "device": "cpu",
        "max_length": 32,
    }


def cheap(files: dict[str, object]) -> dict[str, object]:
    return {name: files[name] for name in ("task", "dev")}


def test_every_system_has_a_score_a_cost_and_a_test_against_the_best(files, tmp_path):
    result = bertsmith.compare_systems(**files, out=tmp_path / "out", systems=FEW, seeds=1, labels=[24])
    rows = {row["system"]: row for row in result.report["rows"]}
    assert list(rows) == FEW
    assert result.report["failures"] == []
    assert result.report["dev_examples"] == 40
    for name, row in rows.items():
        assert row["interval"][0] <= row["mean"] <= row["interval"][1]
        assert row["fitting"] > 0
        assert row["milliseconds"] > 0
        assert row["parameters"] > 10
        assert (row["p_value"] is None) == row["is_best"]
        assert (row["making"] is None) == (name in ("one-hot", "tf-idf", "random"))
    assert rows["bert"]["making"] == rows["bert-frozen"]["making"]
    assert rows["tf-idf"]["mean"] > 0.9  # a word decides
    assert result.report["verdicts"][0].startswith("With 24 labels, ")
    for key in (CellKey(system=name, labels=24, seed=1) for name in FEW):
        lines = lines_of(tmp_path / "out", key)
        right = [line["gold"] == line["prediction"]["label"] for line in lines]
        assert sum(right) / 40 == pytest.approx(rows[key.system]["mean"])


def test_every_pretrained_network_is_compared_frozen_and_fine_tuned_from_one_run(files, tmp_path):
    ways = {"awd-lstm-frozen": "awd-lstm", "elmo-frozen": "elmo", "gpt-frozen": "gpt"}
    names = [name for pair in ways.items() for name in pair]
    files["corpus"] = [write_text(tmp_path / "longer.txt", 400)]  # an AWD-LSTM reads it in 32 tracks
    result = compare_systems(**files, out=tmp_path / "out", systems=names, seeds=1, labels=[24])
    rows = {row["system"]: row for row in result.report["rows"]}
    assert result.report["failures"] == []
    assert list(rows) == names
    provenances = {cell.key.system: cell.provenance for cell in all_cells(tmp_path / "out")}
    for frozen, tuned in ways.items():
        assert rows[frozen]["making"] == rows[tuned]["making"]
        assert provenances[frozen]["base_digest"] == provenances[tuned]["base_digest"] != ""
        assert provenances[tuned]["settings"]["freeze"] == "nothing"
        assert provenances[frozen]["settings"]["columns"] in (
            128,
            256,
        )  # the width of the network, for its linear model
    assert sorted(path.name for path in (tmp_path / "out" / "models").iterdir()) == ["awd-lstm", "elmo", "gpt", "text"]


def test_further_steps_of_the_ladder_start_from_the_same_networks_or_from_none(files, tmp_path):
    names = ["autoencoder", "awd-lstm-random", "awd-lstm-frozen", "ulmfit-target", "gpt-frozen", "gpt-2018"]
    files["corpus"] = [write_text(tmp_path / "longer.txt", 400)]  # an AWD-LSTM reads it in 32 tracks
    out, models = tmp_path / "out", tmp_path / "out" / "models"
    result = compare_systems(**files, out=out, systems=names, seeds=1, labels=[24])
    assert result.report["failures"] == []
    rows = {row["system"]: row for row in result.report["rows"]}
    settings = {cell.key.system: cell.provenance["settings"] for cell in all_cells(out)}
    assert read_json(models / "autoencoder" / "model" / "bertsmith.json")["objective"] == "autoencoder"
    assert rows["awd-lstm-random"]["making"] is None
    # The second stage reads the texts of the task, after the pre-training that the others share.
    (target,) = models.glob("awd-lstm-target-*")
    assert rows["ulmfit-target"]["making"] > rows["awd-lstm-frozen"]["making"]
    weights = [
        digest_file(run / "model" / "model.safetensors") for run in (models / "awd-lstm", target / "continued/run")
    ]
    assert weights[0] != weights[1]
    assert [cell.provenance["base_digest"] for cell in all_cells(out) if cell.key.system == "ulmfit-target"] == weights[
        1:
    ]
    assert settings["ulmfit-target"]["gradual_unfreezing"]
    # The paper of GPT: rates for its size, and the language-model loss next to that of the task.
    assert (settings["gpt-2018"]["language_model_loss"], settings["gpt-2018"]["batch_size"]) == (0.5, 32)
    assert rows["gpt-2018"]["making"] == rows["gpt-frozen"]["making"]


def test_word_vectors_and_frozen_models_that_exist_are_systems(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = train_word_vectors(files["corpus"], "words", method="ppmi", width=8, most_words=9)
    write_word_vectors(vectors, "words.txt", "text")
    write_word_vectors(vectors, "words.bin", "binary")
    Path("cut.bin").write_bytes(Path("words.bin").read_bytes()[:-9])
    base = Path(write_base_model(tmp_path / "base")).name
    names = ["words", "words.txt", "words.bin", "cut.bin", f"{base}:frozen", "starter:frozen"]
    result = compare_systems(
        **cheap(files), device="cpu", max_length=32, out="out", systems=names, seeds=1, labels=[24]
    )
    rows = {row["system"]: row for row in result.report["rows"]}
    assert list(rows) == [name for name in names if name != "cut.bin"]
    assert rows["words"]["values"] == rows["words.txt"]["values"] == rows["words.bin"]["values"]
    assert all(row["making"] is None for row in rows.values())
    count, total = rows["words"]["unknown_words"]
    words = [word for line in Path(files["dev"]).read_text().splitlines()[1:] for word in line.split("\t")[0].split()]
    assert (count, total) == (sum(word not in vectors.index for word in words), len(words))
    assert 0 < count < total
    assert (
        f"words: {count:,} of the {total:,} words of the dev texts have no vector ({count / total:.1%})"
        in result.lines()
    )
    assert rows[f"{base}:frozen"]["unknown_words"] is None
    # A damaged file is the failure of its row alone.
    (failure,) = result.report["failures"]
    assert (failure["system"], failure["error"].count("\n")) == ("cut.bin", 0)
    assert "cut.bin" in failure["error"]
    assert ["24", "cut.bin", "failed"] in [row[:3] for row in result.table()[1]]


def test_both_ways_are_there_for_every_network_that_a_comparison_trains():
    trained = {system.source for system in systems.SYSTEMS.values() if isinstance(system.source, networks.Pretraining)}
    for source in trained:
        both = [system for system in systems.SYSTEMS.values() if system.source == source]
        assert any(isinstance(system, systems.FrozenMean) for system in both), source
        assert any(isinstance(system, systems.FineTuned) and not system.settings for system in both), source


def test_what_is_made_from_the_text_can_be_used_by_other_commands(files, tmp_path):
    names = ["ppmi", "bert-frozen"]
    compare_systems(**files, out=tmp_path / "out", systems=names, seeds=1, labels=[24])
    models = tmp_path / "out" / "models"
    assert bertsmith.load(models / "bert", device="cpu").fill(["the [MASK] was"], top=1)
    assert (models / "ppmi" / "words.txt").is_file()
    assert not list((models / "bert").glob("checkpoints/step-*"))


def test_the_network_without_pretraining_has_the_shape_of_the_one_with_it(files, tmp_path, monkeypatch):
    kept = {}
    make = networks.Untrained.make

    def seen(self, bench, seed, scratch):
        made = make(self, bench, seed, scratch)
        kept[seed] = (read_json(Path(made.path) / "config.json"), digest_file(Path(made.path) / "model.safetensors"))
        return made

    monkeypatch.setattr(networks.Untrained, "make", seen)
    compare_systems(**files, out=tmp_path / "out", systems=["random", "bert-frozen"], seeds=2, labels=[12])
    shapes = [*(shape for shape, _ in kept.values())]
    shapes.append(read_json(tmp_path / "out" / "models" / "bert" / "model" / "config.json"))
    for shape in shapes:
        del shape["architectures"]  # says which heads are in the file
    assert shapes[0] == shapes[1] == shapes[2]
    assert kept[1][1] != kept[2][1]


def test_a_sample_of_few_labels_is_part_of_that_of_more_and_the_same_for_every_system(files, tmp_path):
    result = compare_systems(**cheap(files), out=tmp_path / "out", systems=CHEAP, seeds=2, labels=[12, 24, "all"])
    assert [(row["labels"], row["system"]) for row in result.report["rows"]] == [
        (labels, name) for labels in (12, 24, 48) for name in CHEAP
    ]
    digests = {}
    for cell in all_cells(tmp_path / "out"):
        digests.setdefault((cell.key.labels, cell.key.seed), set()).add(cell.provenance["train"])
    assert all(len(digest_set) == 1 for digest_set in digests.values())
    assert digests[12, 1] != digests[12, 2]
    assert digests[48, 1] == digests[48, 2]


def test_the_report_is_a_table_in_three_forms(files, tmp_path):
    result = compare_systems(**cheap(files), out=tmp_path / "out", systems=CHEAP, seeds=2, labels=[12, "all"])
    header, rows = result.table()
    assert header[:3] == ["labels", "system", "accuracy"]
    assert [row[1] for row in rows] == [*CHEAP, *CHEAP]
    assert "±" in rows[0][2]
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    page = Page(result.page.read_text(encoding="utf-8"))
    for line in result.lines():
        assert line in text
    for cell in (cell for row in rows for cell in row):
        assert cell in text
        assert cell in page.text
    worth = page.text.partition("Which step was worth it")[2].partition("Scores and costs")[0]
    assert len(result.report["verdicts"]) == 2
    assert all(verdict in worth for verdict in result.report["verdicts"]), "one for each number of labels"
    assert result.page.read_text(encoding="utf-8").count("<svg") == 2
    assert page.text.count("with the 95% interval of the first seed") == 2
    assert "processor time as well" in page.text
    left_out = [*result.report["systems"], {"system": "bert", "about": "", "why_not": "it cannot do this"}]
    assert table_of({**result.report, "systems": left_out})[1][-1][:3] == ["–", "bert", "left out"]
    assert read_json(tmp_path / "out" / "report.json") == json.loads(json.dumps(result.report))


def test_a_comparison_that_was_killed_resumes_to_the_same_scores_and_repeats_nothing(files, tmp_path, monkeypatch):
    names, stop = ["one-hot", "word2vec", "bert"], 4
    options = {**files, "systems": names, "seeds": 2, "labels": [12]}
    straight = compare_systems(**options, out=tmp_path / "straight")
    whole, count = fitting._cell, 0

    def killed(*arguments):
        nonlocal count
        count += 1
        if count == stop:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(fitting, "_cell", killed)
    with pytest.raises(KeyboardInterrupt):
        compare_systems(**options, out=tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("cells/*/*.json")}
    assert len(before) == stop - 1
    resumed = compare_systems(files["task"], dev=files["dev"], max_length=32, device="cpu", out=tmp_path / "out",
                              resume=True)  # fmt: skip
    assert count == stop + len(names) * 2 - (stop - 1)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [row["values"] for row in resumed.report["rows"]] == [row["values"] for row in straight.report["rows"]]
    for path in (tmp_path / "straight").glob("cells/*/*.jsonl"):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(tmp_path / "straight")).read_bytes()


def test_with_folds_every_row_is_scored_by_a_fit_that_has_not_seen_it(files, tmp_path, monkeypatch):
    del files["dev"], files["corpus"], files["tokens"]
    options = {**files, "systems": [*CHEAP, write_base_model(tmp_path / "base")], "folds": 3}
    straight = compare_systems(**options, out=tmp_path / "straight")
    rows = {row["system"]: row for row in straight.report["rows"]}
    assert straight.report["failures"] == []
    assert (straight.report["dev_examples"], straight.report["seeds"]) == (48, [1])
    assert "48 examples, each by a model that was fitted without its fold, one of 3" in straight.lines()[0]
    _, folds = read_task("classification", files["task"], None, fold=(2, 3))
    for name, row in rows.items():
        cells = [cell for cell in all_cells(tmp_path / "straight") if cell.key.system == name]
        lines = [lines_of(tmp_path / "straight", cell.key) for cell in cells]
        assert [cell.key.fold for cell in cells] == [1, 2, 3]
        assert [line["id"] for line in lines[1]] == [example.id for example in folds.dev]
        right = sum(line["gold"] == line["prediction"]["label"] for of_fold in lines for line in of_fold)
        assert row["mean"] == row["scores"]["accuracy"] == pytest.approx(right / 48)
        assert row["interval"] == pytest.approx(proportion_interval(right, 48))
        assert (row["p_value"] is None) == row["is_best"]
        assert row["fitting"] == pytest.approx(sum(cell.costs["fit_processor_seconds"] for cell in cells) / 3)
    train = [example.id for example in folds.train]
    (of_second,) = (
        cell for cell in all_cells(tmp_path / "straight") if cell.key.fold == 2 and cell.key.system in CHEAP[:1]
    )
    assert of_second.provenance["train"] == digest_bytes("\n".join(train).encode())

    whole, count = fitting._cell, 0

    def killed(*arguments):
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_cell", killed)
        with pytest.raises(KeyboardInterrupt):
            compare_systems(**options, out=tmp_path / "out")
    with pytest.raises(RunError, match="folds"):
        compare_systems(**{**options, "folds": 4}, out=tmp_path / "out", resume=True)
    resumed = compare_systems(**options, out=tmp_path / "out", resume=True)
    assert [row["scores"] for row in resumed.report["rows"]] == [row["scores"] for row in rows.values()]
    for path in (tmp_path / "straight").glob("cells/*/*.jsonl"):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(tmp_path / "straight")).read_bytes()


def test_groups_are_in_one_fold_and_a_system_with_a_failed_fold_has_no_row(tmp_path, monkeypatch):
    table = [
        {"text": f"{word} {number}", "label": label, "author": f"a{number // 4}"}
        for number in range(16)
        for word, label in (("good", "yes"), ("bad", "no"))
    ]
    calls, whole = [], systems.CountedColumns

    def broken(train, *arguments, **options):
        calls.append({example.first.split()[1] for example in train})
        if len(calls) == 2:
            raise InputError(expected="a column", found="none", fix="add one")
        return whole(train, *arguments, **options)

    monkeypatch.setattr(systems, "CountedColumns", broken)
    options = {"systems": CHEAP, "folds": 4, "group_column": "author", "labels": [12, "all"], "out": tmp_path / "out"}
    result = compare_systems(table, **options)
    assert {len({int(number) // 4 for number in seen}) for seen in calls if len(seen) > 8} == {3}
    assert [(row["labels"], row["system"]) for row in result.report["rows"]] == [
        (12, "one-hot"), (32, "one-hot"), (32, "tf-idf"),
    ]  # fmt: skip
    assert [failure["cell"] for failure in result.report["failures"]] == ["tf-idf, 12 labels, seed 1, fold 1"]
    with pytest.raises(ConfigError, match=r"at most the 24 training examples that there are without a fold; found 25"):
        compare_systems(table, **{**options, "labels": [25], "out": tmp_path / "more"})


def test_few_dev_examples_are_said_to_decide_little(files, tmp_path):
    result = compare_systems(**cheap(files), out=tmp_path / "few", systems=CHEAP, seeds=1)
    (line,) = (line for line in result.lines() if "--folds" in line)
    low, high = next(row["interval"] for row in result.report["rows"] if row["is_best"])
    assert line.startswith("40 dev examples can hardly tell systems apart: the 95% interval of ")
    assert f"is {low:.4f} to {high:.4f}; --folds 5, without --dev, would score all 48 examples" in line
    held_out = compare_systems(files["task"], out=tmp_path / "held-out", systems=CHEAP, seeds=1)
    assert any("--folds 5 would score all 48 examples" in line for line in held_out.lines())
    swapped = compare_systems(files["dev"], dev=files["task"], out=tmp_path / "swapped", systems=CHEAP, seeds=1)
    assert not any("--folds" in line for line in swapped.lines()), "folds would score no more"


def test_a_fit_that_was_killed_resumes_its_training(files, tmp_path, monkeypatch):
    options = {**files, "systems": ["random"], "seeds": 1, "labels": [24]}
    straight = compare_systems(**options, out=tmp_path / "straight")
    calls = []
    finetune = systems.finetune

    def killed(*arguments, **more):
        calls.append(more["resume"])
        result = finetune(*arguments, **more)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(systems, "finetune", killed)
    with pytest.raises(KeyboardInterrupt):
        compare_systems(**options, out=tmp_path / "out")
    resumed = compare_systems(**options, out=tmp_path / "out", resume=True)
    assert calls == [False, True]
    assert resumed.report["rows"][0]["scores"] == straight.report["rows"][0]["scores"]
    assert not list((tmp_path / "out" / "cells").glob("*/*/"))


def test_systems_labels_and_seeds_can_be_added_to_a_finished_comparison(files, tmp_path):
    out = tmp_path / "out"
    compare_systems(**cheap(files), out=out, systems=["one-hot"], seeds=1, labels=[12])
    result = compare_systems(**cheap(files), out=out, systems=["tf-idf"], seeds=2, labels=[24], resume=True)
    shapes = {(row["labels"], row["system"]): row["seeds"] for row in result.report["rows"]}
    assert shapes == {(12, "one-hot"): [1], (24, "tf-idf"): [1, 2]}
    every = compare_systems(**cheap(files), out=out, resume=True)
    shapes = {(row["labels"], row["system"]): row["seeds"] for row in every.report["rows"]}
    assert shapes == {(labels, name): [1, 2] for labels in (12, 24) for name in CHEAP}


def test_a_system_that_fails_is_reported_with_its_reason_and_tried_again(files, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise InputError(expected="a column", found="none", fix="add one")

    whole = systems.CountedColumns
    monkeypatch.setattr(systems, "CountedColumns", broken)
    options = {**files, "systems": ["one-hot", "ppmi"], "seeds": 2, "labels": [24]}
    result = compare_systems(**options, out=tmp_path / "out")
    assert [row["system"] for row in result.report["rows"]] == ["ppmi"]
    assert {failure["error"] for failure in result.report["failures"]} == {"expected a column; found none; add one"}
    assert "one-hot, 2 cells, failed: expected a column; found none; add one" in result.lines()
    assert [row[:3] for row in result.table()[1]][1:] == [["24", "one-hot", "failed"]]
    monkeypatch.setattr(systems, "CountedColumns", whole)
    result = compare_systems(**options, out=tmp_path / "out", resume=True)
    assert result.report["failures"] == []
    assert [row["system"] for row in result.report["rows"]] == ["one-hot", "ppmi"]


def test_if_no_system_can_be_fitted_the_first_reason_is_the_error(files, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise InputError(expected="a column", found="none", fix="add one")

    monkeypatch.setattr(systems, "CountedColumns", broken)
    with pytest.raises(ConfigError, match="found none: expected a column"):
        compare_systems(**cheap(files), out=tmp_path / "out", systems=CHEAP, seeds=1)


def test_models_are_shared_by_comparisons_of_the_same_text_and_time_only(files, tmp_path, monkeypatch):
    options = {**files, "systems": ["ppmi", "bert-frozen"], "seeds": 1, "labels": [24], "models": tmp_path / "models"}
    first = compare_systems(**options, out=tmp_path / "first")
    monkeypatch.setattr(networks, "pretrain", None)
    monkeypatch.setattr(word_vector_training, "train_word_vectors", None)
    second = compare_systems(**options, out=tmp_path / "second")
    assert [row["values"] for row in first.report["rows"]] == [row["values"] for row in second.report["rows"]]
    assert not (tmp_path / "second" / "models").exists()
    with pytest.raises(RunError, match="of this text and budget"):
        compare_systems(**{**options, "tokens": 2 * TOKENS}, out=tmp_path / "third")
    write_text(tmp_path / "text.txt", 160)
    with pytest.raises(RunError, match="those of another text"):
        compare_systems(**options, out=tmp_path / "fourth")


def test_a_corpus_folder_is_as_good_as_its_text(files, tmp_path):
    learned = bertsmith.learn_vocabulary(files["corpus"], 200)
    bertsmith.build_corpus(files["corpus"], learned.tokenizer, tmp_path / "corpus")
    options = {**files, "systems": ["word2vec", "bert-frozen"], "seeds": 1, "labels": [24]}
    of_text = compare_systems(**options, out=tmp_path / "of-text")
    options["corpus"] = [tmp_path / "corpus"]
    of_corpus = compare_systems(**options, out=tmp_path / "of-corpus")
    text = (tmp_path / "of-corpus" / "models" / "text" / "text.txt").read_text(encoding="utf-8")
    assert sorted(filter(None, text.splitlines())) == sorted(filter(None, files["corpus"][0].read_text().splitlines()))
    parameters = [
        {row["system"]: row["parameters"] for row in comparison.report["rows"]} for comparison in (of_text, of_corpus)
    ]
    assert parameters[0]["word2vec"] == parameters[1]["word2vec"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"systems": ["tfidf"]}, "found 'tfidf'; did you mean 'tf-idf'?"),
        ({"systems": ["no/model"]}, None),
        ({"systems": ["no/model:frozen"]}, None),
        ({"systems": ["bert:frozen"]}, "found 'bert:frozen'; did you mean 'bert-frozen'?"),
        ({"systems": ["one-hot", "one-hot"]}, "'one-hot' twice"),
        ({"systems": ["bert"]}, "^bert needs text to read; name it with `corpus`, or choose others with `systems`$"),
        ({"labels": [49]}, "expected at most the 48 training examples that there are; found 49 labels"),
        ({"labels": ["some"]}, "expected labels as numbers above 0, or all; found 'some'"),
        ({"labels": [0]}, "numbers above 0"),
        ({"folds": 3}, "expected one of `folds` and `dev`; found both; leave `dev` out"),
        ({"minutes": 1.0}, "`minutes` needs a system that is trained on text, other than"),
        ({"seeds": -1}, "seeds must be at least 1"),
        ({"kind": "regresion"}, "did you mean 'regression'?"),
        ({"task": "nowhere.tsv"}, "nowhere.tsv"),
        ({"metric": "f2"}, "unknown metric of classification"),
        ({"device": "gpu"}, "'gpu'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(files, tmp_path, changes, said):
    options = {**cheap(files), "systems": CHEAP, "out": tmp_path / "out", "seeds": 1, **changes}
    with pytest.raises(BertsmithError, match=said):
        compare_systems(**options)
    if said is not None:
        assert not (tmp_path / "out").exists()


def test_text_without_words_and_two_budgets_are_refused(files, tmp_path):
    empty = tmp_path / "empty.txt"
    for content in ("", "\n \n\n"):
        empty.write_text(content)
        with pytest.raises(InputError, match=r"empty\.txt"):
            compare_systems(**{**files, "corpus": [empty]}, out=tmp_path / "out", systems=["bert-frozen"], seeds=1)
    with pytest.raises(ConfigError, match="one of `minutes` and `tokens`"):
        compare_systems(**files, minutes=1.0, out=tmp_path / "out", systems=["ppmi"])


def test_the_folder_of_another_comparison_is_refused(files, tmp_path):
    out = tmp_path / "out"
    compare_systems(**cheap(files), out=out, systems=["one-hot"], seeds=1)
    with pytest.raises(RunError, match="`resume=True`"):
        compare_systems(**cheap(files), out=out, systems=["one-hot"], seeds=1)
    with pytest.raises(RunError, match=r"digest of train"):
        compare_systems(files["dev"], dev=files["dev"], out=out, systems=["one-hot"], resume=True)
    with pytest.raises(RunError, match="metric"):
        compare_systems(**cheap(files), metric="macro_f1", out=out, systems=["one-hot"], resume=True)
    with pytest.raises(RunError, match="a run in"):
        compare_systems(**cheap(files), out=tmp_path / "none", systems=["one-hot"], resume=True)


def test_a_time_that_is_too_short_says_the_least_for_each_system(files, tmp_path):
    del files["tokens"]
    options = {**files, "systems": ["one-hot", "ppmi", "word2vec", "bert"], "seeds": 1, "labels": [24]}
    result = compare_systems(**options, minutes=1e-6, out=tmp_path / "out")
    failed = {failure["system"]: failure["error"] for failure in result.report["failures"]}
    assert list(failed) == ["bert", "ppmi", "word2vec"]
    for name, error in failed.items():
        assert f"leave {name} out of --systems" in error
        assert "minutes with --minutes" in error
    assert sorted(path.name for path in (tmp_path / "out" / "models").iterdir()) == ["text"]


def test_the_time_of_an_answer_is_the_median_over_single_examples_by_the_given_clock():
    now, seen = [0.0], []

    def answer(examples):
        seen.append(len(examples))
        now[0] += {1: 100.0, 2: 0.5, 3: 0.25, 4: 0.125}[len(seen)]

    assert fitting.milliseconds(answer, ["a", "b", "c"], lambda: now[0]) == 250.0
    assert seen == [1, 1, 1, 1]
