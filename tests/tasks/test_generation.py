"""Texts to write: decoder, loss, search, files, settings; the contract of every task is in `test_contract.py`."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.decoder import starts_of
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.memory import Memory
from bertsmith.recipes.distillation.transfer_set import Sources, read_sources
from bertsmith.recipes.finetuning.base_model import require_divisible
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.opening import opening_lines, options_of
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.datasets.examples import SequenceExample
from bertsmith.tasks.datasets.sequences import read_sequences
from bertsmith.tasks.encoding import generation
from bertsmith.tasks.encoding.generation import write_texts
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.encoding.writing import Finished, Writing
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import WRITTEN, kind_of, spec_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.task_data.split import TaskData
from server.models import write_task_model
from tasks.architecture_samples import encoder_of, tokenizer_of
from tasks.architecture_samples import write_base_model as write_architecture
from tasks.task_samples import SPECS, TOKENIZER, examples_of, write_base_model

KIND = "text to write"
SPEC = SPECS[KIND]
CLS, SEP = TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id
DECODABLE = ("bert", "distilbert", "roberta", "electra", "albert", "mpnet", "modernbert", "deberta-v2")
WRITING = Writing(start=CLS, end=SEP, pieces=len(TOKENIZER.vocabulary), never=(0, 1, CLS, 4), longest=6)


def model_of(architecture: str = "bert", seed: int = 3) -> EncoderForTask:
    """A model whose random weights are large, so that its texts differ."""
    model = EncoderForTask(encoder_of(architecture), task_for(SPEC).head, seed=seed).double().eval()
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn, dtype=torch.float64) * 0.2)
    return model


def rows_of(architecture: str = "bert", count: int = 6) -> list[np.ndarray]:
    features = task_for(SPEC).encode(examples_of(KIND, count), tokenizer_of(architecture))
    return [features.rows.row(number)[0] for number in range(count)]


@pytest.mark.parametrize("architecture", DECODABLE)
@torch.no_grad()
def test_piece_by_piece_gives_the_logits_of_one_pass(architecture: str) -> None:
    model, rows = model_of(architecture), rows_of(architecture, 3)
    source = model.encode(Batch.from_rows(rows))
    targets = [np.array([5, 6, 7, 8]), np.array([6, 5, 9, 9]), np.array([9, 8, 7, 6])]
    whole = model.decode(Batch.from_rows(targets), source).view(3, 4, -1)
    memory = Memory()
    for step in range(4):
        step_logits = model.decode(
            Batch.from_rows([target[step : step + 1] for target in targets]), source, memory=memory
        )
        torch.testing.assert_close(step_logits, whole[:, step], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_piece_does_not_see_those_after_it_and_sees_the_source() -> None:
    model, rows = model_of(), rows_of(count=2)
    source, other = (model.encode(Batch.from_rows([row])) for row in rows)
    first, second = np.array([CLS, 5, 6, 7]), np.array([CLS, 5, 9, 9])
    logits, changed = (model.decode(Batch.from_rows([target]), source) for target in (first, second))
    torch.testing.assert_close(logits[:2], changed[:2])
    assert not torch.allclose(logits[2:], changed[2:])
    assert not torch.allclose(logits[0], model.decode(Batch.from_rows([first]), other)[0])


@pytest.mark.parametrize("architecture", DECODABLE)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_text_is_the_same_alone_and_in_any_batch(architecture: str, beam: int) -> None:
    model, rows = model_of(architecture), rows_of(architecture)
    vocabulary = tokenizer_of(architecture).vocabulary
    template = tokenizer_of(architecture).template
    end = template.end[0]
    writing = Writing(
        start=template.start[0],
        end=end,
        pieces=len(vocabulary),
        never=tuple(vocabulary.special_ids - {end}),
        longest=6,
        beam=beam,
        answers=beam,
        length_penalty=0.6,
    )
    together = write_texts(model, rows, [6] * len(rows), writing)
    for row, texts in zip(rows, together, strict=True):
        (alone,) = write_texts(model, [row], [6], writing)
        assert [(text.ids, text.has_ended) for text in alone] == [(text.ids, text.has_ended) for text in texts]
        np.testing.assert_allclose([text.score for text in alone], [text.score for text in texts], rtol=1e-9)
        assert not set(alone[0].ids) & vocabulary.special_ids
        assert len({text.ids for text in alone}) == len(alone) <= beam


def test_fewer_sources_are_computed_together_the_longer_their_texts_may_become(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def noted(model: object, source: Batch, limits: list[int], *_: object) -> list[list[Finished]]:
        sizes.append(source.num_rows)
        return [[Finished((), 0.0, has_ended=True)]] * len(limits)

    monkeypatch.setattr(generation, "_search", noted)
    rows = [np.array([CLS, 5, SEP])] * 64
    for limit in (8, 1024):
        write_texts(model_of(), rows, [limit] * 64, dataclasses.replace(WRITING, beam=4))
    assert sizes == [64] + [4] * 16


def test_several_answers_are_ranked_and_the_first_is_that_of_one() -> None:
    model, rows = model_of(), rows_of()
    several = dataclasses.replace(WRITING, beam=4, answers=3)
    for texts, (single,) in zip(
        write_texts(model, rows, [6] * 6, several),
        write_texts(model, rows, [6] * 6, dataclasses.replace(several, answers=1)),
        strict=True,
    ):
        assert len(texts) == 3
        ranks = [(text.has_ended, text.score) for text in texts]
        assert ranks == sorted(ranks, reverse=True)
        assert ranks[0] >= (single.has_ended, single.score)  # the search for more texts takes longer


def test_no_run_of_pieces_is_repeated_and_a_text_has_its_minimum_length() -> None:
    model, rows = model_of(seed=1), rows_of()
    free = write_texts(model, rows, [12] * 6, dataclasses.replace(WRITING, longest=12))
    assert any(len(set(zip(text.ids, text.ids[1:], strict=False))) < len(text.ids) - 1 for (text,) in free)
    limited = dataclasses.replace(WRITING, longest=12, no_repeat_ngram=2, shortest=5, beam=2)
    for (text,) in write_texts(model, rows, [12] * 6, limited):
        pairs = list(zip(text.ids, text.ids[1:], strict=False))
        assert len(set(pairs)) == len(pairs)
        assert 5 <= len(text.ids) <= 12


def test_numbers_that_are_none_are_refused_by_their_example() -> None:
    task, model = task_for(SPEC), EncoderForTask(encoder_of("bert"), task_for(SPEC).head, seed=0)
    with torch.no_grad():
        model.output_layer.get_parameter("layers.0.source_norm.weight")[0] = math.nan
    with pytest.raises(BertsmithError, match="line 1 of 'samples'"):
        Predictor(model, task, TOKENIZER, choose("cpu", "fp32")).predict(examples_of(KIND, 2))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_mean_over_the_pieces_of_the_targets(smoothing: float) -> None:
    settings = dataclasses.replace(SPEC.settings, label_smoothing=smoothing)
    task, examples = task_for(dataclasses.replace(SPEC, settings=settings)), examples_of(KIND, 5)
    model, features = model_of().requires_grad_(False), task.encode(examples, TOKENIZER, training=True)
    (batch,) = micro_batches(features, np.arange(5), micro_tokens=10_000, device="cpu")
    loss, sums = task.loss(model(batch.batch, target=batch.target), batch)
    expected, pieces = 0.0, 0
    for example in examples:
        source, target = ([CLS, *TOKENIZER.encode(text), SEP] for text in (example.source, example.targets[0]))
        logits = model(Batch.from_rows([np.array(source)]), target=Batch.from_rows([np.array(target[:-1])]))
        shares = logits.log_softmax(1)
        for row, gold in zip(shares, target[1:], strict=True):
            expected -= float((1 - smoothing) * row[gold] + smoothing * row.mean())
            pieces += 1
    assert batch.step_targets == pieces == int(sums["count"])
    assert float(loss) == pytest.approx(expected, rel=1e-9)


def test_source_and_target_count_in_micro_batches() -> None:
    task, examples = task_for(SPEC), examples_of(KIND, 6)
    features = task.encode(examples, TOKENIZER, training=True)
    whole = features.lengths + features.target_rows.lengths
    assert features.unit_tokens.tolist() == whole.tolist()
    for batch in micro_batches(features, np.arange(6), micro_tokens=int(whole.max()), device="cpu"):
        rows = batch.num_units
        assert rows == 1 or batch.batch.num_tokens + batch.target.num_tokens + rows <= whole.max()


def test_a_target_that_is_too_long_is_cut_without_an_end_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    settings = dataclasses.replace(SPEC.settings, max_target_length=2)
    task = task_for(dataclasses.replace(SPEC, settings=settings))
    examples = [
        SequenceExample(id=str(n), source="anna", targets=(text,)) for n, text in enumerate(("oslo", "a the a"))
    ]
    rows = task.encode(examples, TOKENIZER, training=True).target_rows
    assert [rows.row(number)[0].tolist()[-1] == SEP for number in range(2)] == [True, False]
    assert rows.lengths.tolist() == [3, 3]
    assert "1 target of 2 cut, with more than 2 pieces; raise --max-target-length" in capsys.readouterr().err


def test_a_training_reads_the_first_of_several_targets_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    examples = [SequenceExample(id="0", source="anna", targets=("oslo", "rome"))]
    rows = task_for(SPEC).encode(examples, TOKENIZER, training=True).target_rows
    assert rows.token_ids.tolist() == [CLS, *TOKENIZER.encode("oslo"), SEP]
    assert "1 example has several targets; the first one is learned" in capsys.readouterr().err


def test_a_training_selects_by_greedy_texts_and_reports_those_of_the_search(tmp_path: Path) -> None:
    spec = dataclasses.replace(
        SPEC, settings=dataclasses.replace(SPEC.settings, stride=128, min_target_length=2, beam=4)
    )
    data = TaskData(train=examples_of(KIND, 32), dev=examples_of(KIND, 12, seed=1))
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32")
    job = FinetuningJob.prepare(write_base_model(tmp_path / "base"), spec, data, settings, RecipeSettings(log_every=1))
    assert "; a decoder of 26,816 parameters on top, most of them copied from the encoder" in opening_lines(job)[0]
    assert options_of(job).startswith("--decoder-start encoder --decoder-rate 1 --freeze nothing ")
    job.train_once(tmp_path / "run", 1)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    selected = next(line for line in lines if line["kind"] == "evaluation")
    model = load_for_task(load_any(tmp_path / "run/model"), job.head, keep_head=True).model
    greedy = task_for(dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, beam=1, answers=1)))
    scores, _ = Predictor(model, greedy, TOKENIZER, choose("cpu", "fp32")).evaluate(data.dev)
    assert selected["held_out_rougeL"] == pytest.approx(scores["rougeL"], abs=1e-6)
    searched, predictions = Predictor(model, task_for(spec), TOKENIZER, choose("cpu", "fp32")).evaluate(data.dev)
    recorded = [json.loads(line) for line in (tmp_path / "run/predictions.jsonl").read_text().splitlines()]
    assert [line["prediction"]["text"] for line in recorded] == [prediction.text for prediction in predictions]
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert report["scores"] == pytest.approx(searched, abs=1e-6)


def test_a_decoder_learns_faster_than_its_encoder(tmp_path: Path) -> None:
    data = TaskData(train=examples_of(KIND, 8), dev=())
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", decoder_rate=4.0)
    job = FinetuningJob.prepare(write_base_model(tmp_path / "base"), SPEC, data, settings, RecipeSettings())
    model = job.started_model(1)
    work = Finetuning(model, job.task, job.train, None, TOKENIZER, settings, job.runtime, seed=1)
    factors = {name: work.rate_factor(name) for name, _ in model.named_parameters()}
    assert {factor for name, factor in factors.items() if name.startswith("decoder.")} == {4.0}
    assert {factor for name, factor in factors.items() if name.startswith("bert.")} == {1.0}


def test_a_model_that_writes_is_not_divided_exported_or_taught(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a decoder, which shares tables with the encoder"):
        require_divisible(task_for(SPEC).head, FinetuningSettings())
    folder = write_task_model(tmp_path / "model", SPEC)
    with pytest.raises(ConfigError, match='a head that gives logits, for `to="onnx"`; found a decoder'):
        bertsmith.convert(folder, tmp_path / "onnx", to="onnx")
    with pytest.raises(ConfigError, match="which writes texts; train a smaller one on its texts"):
        read_sources(load_any(folder), Sources(train=tmp_path / "train.jsonl"))


def test_a_decoder_starts_as_layers_of_the_encoder_and_the_head_for_pieces(tmp_path: Path) -> None:
    folder = load_any(write_base_model(tmp_path / "base"))
    head = dataclasses.replace(task_for(SPEC).head, layers_of_decoder=1)
    copied = load_for_task(folder, head, keep_head=False, copies_layers=True).model
    state = dict(copied.named_parameters())
    starts = dict(starts_of(copied.encoder, copied.output_layer))
    assert starts["decoder.layers.0.query.weight"] == "bert.layers.0.query.weight"
    assert starts["decoder.head.transform.weight"] == "mlm.transform.weight"
    for name, other in starts.items():
        assert torch.equal(state[name], folder.tensors[other])
    new = {name for name in state if name.startswith("decoder.") and name not in starts}
    assert {name.split(".")[3].split("_")[0] for name in new} == {"source"}
    drawn = load_for_task(folder, head, keep_head=False).model.state_dict()
    assert not torch.equal(drawn["decoder.layers.0.query.weight"], state["decoder.layers.0.query.weight"])
    with pytest.raises(ConfigError, match="at most 2 layers of a decoder"):
        load_for_task(folder, dataclasses.replace(head, layers_of_decoder=3), keep_head=False)


@pytest.mark.parametrize("architecture", ["openai-gpt", "awd-lstm", "elmo", "bilstm"])
def test_an_architecture_that_cannot_have_a_decoder_is_refused_in_a_line(architecture: str, tmp_path: Path) -> None:
    base, data = write_architecture(tmp_path / "base", architecture), TaskData(train=examples_of(KIND, 4), dev=())
    with pytest.raises(ConfigError, match=r"a Transformer that reads in both directions, to add a decoder; found "):
        FinetuningJob.prepare(base, SPEC, data, FinetuningSettings(), RecipeSettings())


@pytest.mark.parametrize("settings", [{"decoder_layers": 1}, {"decoder_start": "random"}, {"decoder_rate": 2.0}])
def test_settings_of_a_decoder_are_refused_for_other_tasks(settings: dict[str, object], tmp_path: Path) -> None:
    data = TaskData(train=examples_of("single", 4), dev=())
    with pytest.raises(ConfigError, match="a task of texts to write for --decoder-layers, --decoder-start and"):
        FinetuningJob.prepare(
            write_base_model(tmp_path / "base"), SPECS["single"], data, FinetuningSettings(**settings), RecipeSettings()
        )


def test_settings_of_writing_are_stored_with_models_that_write_alone() -> None:
    assert {"beam", "answers", "max_target_length"} <= SPEC.to_dict()["settings"].keys()
    assert not {"beam", "answers", "max_target_length"} & SPECS["single"].to_dict()["settings"].keys()
    with pytest.raises(ConfigError, match="answers"):
        TaskSettings(beam=2, answers=3)
    with pytest.raises(ConfigError, match="min_target_length"):
        TaskSettings(min_target_length=9, max_target_length=8)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_named_task_has_a_main_score_from_0_to_1(name: str) -> None:
    assert kind_of(name) == "generation"
    spec = spec_for(name, ())
    task, text = task_for(spec), "(S (NP (NNP Ann)) (VP (VBZ reads)))"
    examples = [SequenceExample(id="0", source="Ann reads", targets=(text, text))]
    features = task.encode(examples, TOKENIZER)
    prediction = dataclasses.replace(
        task.decode(examples, features, features.writing.as_numbers([Finished((), -1.0, True)])[None], TOKENIZER)[0],
        text=text,
    )
    assert task.score(examples, [prediction])[spec.metric] == pytest.approx(1.0)
    assert task.example_scores(examples, [prediction]).tolist() == pytest.approx([1.0])


FILES = {
    "a.jsonl": '{"source": "anna", "target": "oslo"}\n{"source": "bert", "target": ["rome", "lima"]}\n',
    "a.csv": 'document,summary\nanna,oslo\nbert,"[""rome"", ""lima""]"\n',
    "a.tsv": 'body\tsubject\tsender\nanna\toslo\tx\nbert\t["rome", "lima"]\ty\n',
}


@pytest.mark.parametrize("name", FILES)
def test_a_table_is_read_with_one_target_or_several(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    examples = read_sequences(tmp_path / name).examples
    assert [(row.source, row.targets) for row in examples] == [
        ("anna", ("oslo",)),
        ("bert", ("rome", "lima")),
    ]
    bare = read_sequences(tmp_path / name, gold=False).examples
    assert [row.targets for row in bare] == [(), ()]


def test_a_tsv_of_pairs_needs_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("anna\toslo\nbert\trome\n", encoding="utf-8")
    examples = read_sequences(tmp_path / "a.tsv").examples
    assert [(row.source, row.targets) for row in examples] == [
        ("anna", ("oslo",)),
        ("bert", ("rome",)),
    ]
    assert examples[1].location == f"line 2 of '{tmp_path / 'a.tsv'}'"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.jsonl",
            '{"first": "anna", "target": "oslo"}\n',
            "a column named 'source' .*; found columns 'first', 'target'",
        ),
        ("a.jsonl", '{"source": "anna", "label": "oslo"}\n', "a column named 'target' .*--label-column"),
        ("a.jsonl", '{"source": "anna", "target": ["oslo", 3]}\n', "a text, or a list of texts, as 'target' in line 1"),
        ("a.jsonl", '{"source": "anna", "target": [1, 2]}\n', "a text, or a list of texts, as 'target' in line 1"),
        ("a.jsonl", '{"source": "anna", "target": ""}\n', "rows with a source and a target .*1 row, none of them"),
        ("a.jsonl", '{"source": "anna", "target": []}\n', "rows with a source and a target .*1 row, none of them"),
        ("a.jsonl", '{"source": "anna"}\n', "a column named 'target' .*; found column 'source'; rename it"),
        ("a.tsv", "anna\toslo\nbert\n", "a text, a tab and another text in line 2 of"),
        ("a.docx", "", "save its text as"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_sequences(tmp_path / name)


def test_columns_are_named_and_rows_without_a_target_are_listed(tmp_path: Path) -> None:
    lines = [{"id": "x", "a": "anna", "b": "oslo"}, {"id": "y", "a": "bert", "b": " "}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    read = read_sequences(tmp_path / "a.jsonl", text_column="a", label_column="b")
    assert [(row.id, row.targets) for row in read.examples] == [("x", ("oslo",))]
    assert [reason for _, reason in read.skipped] == ["no text in column 'b'"]


def test_the_library_trains_loads_and_writes(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    lines = [{"source": row.source, "target": row.targets[0]} for row in examples_of(KIND, 40)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    bertsmith.finetune(
        base,
        "summarization",
        tmp_path / "run",
        train=tmp_path / "train.jsonl",
        epochs=1,
        seeds=1,
        decoder_layers=1,
        max_length=16,
        max_target_length=8,
        beam=3,
        answers=2,
    )
    model = bertsmith.load(tmp_path / "run")
    assert (model.task, model.abilities[0], model.max_written) == ("generation", "generate", 16)
    first, empty = model.generate(["anna rome", " "])
    assert first.answers[0] == (first.text, first.score)
    assert len(first.answers) == 2
    assert empty.text == ""
    (longer,) = model.generate(["anna rome"], beam=5, answers=5, min_target_length=3)
    assert len(longer.answers) == 5
    with pytest.raises(ConfigError, match=r"unknown option of generate: 'beams'; did you mean 'beam'\?"):
        model.generate(["anna"], beams=3)
    with pytest.raises(ConfigError, match="max_target_length must be"):
        model.generate(["anna"], max_target_length=10_000)
    assert model.embed(["anna"]).shape == (1, 32)
    with pytest.raises(InputError, match="a text"):
        model.generate([3])
    with pytest.raises(BertsmithError, match="a model with the ability classify"):
        model.classify(["anna"])


@pytest.mark.parametrize("architecture", DECODABLE)
def test_a_decoder_that_shares_layers_is_one_that_starts_as_them_and_stores_them_once(architecture: str) -> None:
    shared_head = dataclasses.replace(task_for(SPEC).head, shares_layers=True)
    shared = EncoderForTask(encoder_of(architecture), shared_head, seed=3).double().eval()
    copied = EncoderForTask(encoder_of(architecture), task_for(SPEC).head, seed=3).double().eval()
    names = {name for name in shared.state_dict() if name.startswith("decoder.layers.")}
    assert {name.split(".")[3].split("_")[0] for name in names} == {"source"}
    tensors, starts = shared.state_dict(), dict(starts_of(copied.encoder, copied.output_layer))
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            parameter.copy_(tensors[starts[name] if name not in tensors else name])
    rows, target = rows_of(architecture, 3), Batch.from_rows([np.array([5, 6, 7])] * 3)
    outputs = [model(Batch.from_rows(rows), target=target) for model in (shared, copied)]
    torch.testing.assert_close(outputs[0], outputs[1])
    for output in outputs:
        output.square().sum().backward()
    for name, parameter in shared.named_parameters():
        others = [
            copied.get_parameter(other) for other, start in starts.items() if start == name and other not in tensors
        ]
        parts = [part.grad for part in (copied.get_parameter(name), *others) if part.grad is not None]
        assert (parameter.grad is None) == (not parts), name
        if parts:
            torch.testing.assert_close(parameter.grad, sum(parts[1:], parts[0]))


def test_a_training_with_shared_layers_stores_a_model_that_writes_the_same(tmp_path: Path) -> None:
    data = TaskData(train=examples_of(KIND, 32), dev=examples_of(KIND, 12, seed=1))
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", decoder_start="shared")
    job = FinetuningJob.prepare(write_base_model(tmp_path / "base"), SPEC, data, settings, RecipeSettings(log_every=1))
    assert "a decoder of 9,728 parameters on top, whose layers are those of the encoder" in opening_lines(job)[0]
    job.train_once(tmp_path / "run", 1)
    recorded = [json.loads(line) for line in (tmp_path / "run/predictions.jsonl").read_text().splitlines()]
    folder = load_any(tmp_path / "run/model")
    assert not {name for name in folder.tensors if name.startswith("decoder.layers.0.query")}
    loaded = bertsmith.load(tmp_path / "run/model")
    written = loaded.generate([row.source for row in data.dev])
    assert [prediction.text for prediction in written] == [line["prediction"]["text"] for line in recorded]
