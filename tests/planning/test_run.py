"""The plan of a pre-training: steps, hours, price, and what it refuses."""

import dataclasses
import json
import re

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.loop.budget import Durations
from bertsmith.training.loop.clock import RESERVE
from bertsmith.training.loop.devices import GPUS
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.planning.plan import seconds_of, size, steps_of
from bertsmith.training.planning.run import plan_pretraining
from written_files import file_with

RUN = {"size": "tiny", "max_length": 24, "rows_per_step": 8, "evaluation_rows": 8}
DURATIONS = Durations(step=2.0, evaluation=10.0, checkpoint=3.0)


@pytest.fixture(scope="module")
def measured(corpus):
    with bertsmith.quiet():
        return plan_pretraining(
            corpus, **RUN, device="cpu", precision="fp32", steps=50, evaluate_every=20, probe_seconds=0.1
        )


def gpu_plan(corpus, **settings):
    return plan_pretraining(corpus, **{**RUN, "device": "h200", "steps": 1000, **settings})


def test_the_parts_of_a_measured_plan_are_those_of_the_run(measured, corpus):
    rates = measured.rates
    assert measured.seconds["steps"] == pytest.approx(50 * rates.seconds_per_step)
    assert measured.seconds["evaluations"] == pytest.approx(4 * rates.seconds_per_evaluation)  # 0, 20, 40 and 50
    assert measured.seconds["checkpoints"] == pytest.approx(4 / 3 * rates.seconds_per_checkpoint)
    assert min(rates.seconds_per_step, rates.seconds_per_evaluation, rates.seconds_per_checkpoint) > 0
    assert measured.hours == pytest.approx(sum(measured.seconds.values()) / 3600)
    assert measured.corpus_tokens == Corpus.open(corpus).document_lengths.sum()


def test_the_tokens_of_a_plan_are_those_of_the_run(measured, corpus, tmp_path):
    with bertsmith.quiet():
        result = bertsmith.pretrain(
            corpus, tmp_path / "run", **RUN, device="cpu", precision="fp32", steps=50, evaluate_every=20
        )
    assert measured.tokens == pytest.approx(result.tokens, rel=0.05)
    assert len(RunFolder.open(tmp_path / "run").metrics("evaluation")) == 4
    tensors = [path.stat().st_size for path in (tmp_path / "run" / "checkpoints").glob("*50/*.safetensors")]
    assert measured.memory.checkpoint == pytest.approx(sum(tensors), rel=0.01)


def test_measuring_trains_nothing_and_writes_nothing(corpus):
    before = {path: path.read_bytes() for path in corpus.parent.rglob("*") if path.is_file()}
    with bertsmith.quiet():
        plan = plan_pretraining(corpus, **RUN, device="cpu", precision="fp32", steps=5, probe_seconds=0.1)
    assert {path: path.read_bytes() for path in corpus.parent.rglob("*") if path.is_file()} == before
    assert plan.steps == 5


def test_a_corpus_at_an_address_is_planned_as_on_a_disk(corpus, tmp_path):
    memory = fsspec.filesystem("memory")
    memory.put(str(corpus), "/plans/corpus", recursive=True)
    settings = {**RUN, "device": "h200", "passes": 3}
    streamed = plan_pretraining("memory://plans/corpus", **settings, corpus_cache=str(tmp_path / "cache"))
    memory.rm("/plans", recursive=True)
    assert {**streamed.to_dict(), "settings": 0} == {**plan_pretraining(corpus, **settings).to_dict(), "settings": 0}


def test_a_plan_says_when_the_run_ends_and_how_much_memory_it_may_keep(measured):
    lines = dict(line.split(": ", 1) for line in measured.lines())
    assert re.fullmatch(r"\w{3} \d{4}-\d\d-\d\d \d\d:\d\d .+, if it starts now", lines["ends"])
    assert "gain" not in lines, "not measured for a text of this length"
    assert measured.to_dict()["gain"] is None
    assert "gain: 2 points" in dataclasses.replace(measured, gain="2 points").lines()
    peak = measured.memory.peak("cpu")
    assert measured.memory.total < peak == measured.to_dict()["bytes"]["peak"]
    assert f"at most about {size(peak)} including freed memory that it keeps" in lines["memory of a process"]
    assert measured.memory.peak("cuda") == measured.memory.total


def test_a_run_that_may_not_fit_is_noted(corpus):
    settings = {"rows_per_step": 2048, "micro_tokens": 10**6, "device": "l4"}
    small, large = (gpu_plan(corpus, **settings, size=name) for name in ("tiny", "large"))
    assert not any("may need" in note for note in small.notes)
    assert any("may need" in note and "lower --micro-tokens" in note for note in large.notes)


def test_layers_that_are_computed_again_keep_less(corpus, measured, tmp_path):
    path = tmp_path / "rates.json"
    settings = {**RUN, "device": "cpu", "precision": "fp32", "steps": 5, "activation_checkpointing": True}
    with bertsmith.quiet():
        again = plan_pretraining(corpus, **settings, probe_seconds=0.1)
    assert again.memory.activations < measured.memory.activations
    path.write_text(json.dumps(again.to_dict()), encoding="utf-8")
    with pytest.raises(InputError, match="expected a plan with activation_checkpointing = False; found True in"):
        plan_pretraining(corpus, **RUN, rates=str(path), steps=5)


def test_processes_that_divide_a_model_hold_and_exchange_its_parts(corpus):
    settings = {"machines": 2, "processes": 4, "micro_tokens": 48}
    whole, divided = gpu_plan(corpus, **settings), gpu_plan(corpus, **settings, shard=True)
    for name in ("parameters", "gradients", "moments"):
        # A few tensors have fewer rows than there are processes.
        assert getattr(divided.memory, name) == pytest.approx(getattr(whole.memory, name) / 8, rel=0.05)
    assert (whole.memory.gathered, divided.memory.checkpoint) == (0, whole.memory.checkpoint)
    assert 2 * 4 * 128 * 128 < divided.memory.gathered < 3 * whole.memory.parameters, "of two layers in all"
    assert divided.memory.total == sum(value for name, value in vars(divided.memory).items() if name != "checkpoint")
    # Of each pass two gathers and one exchange; replicas exchange sums once in a step, there and back.
    passes = -(-divided.rates.tokens_per_step // (8 * 48))
    exchanged = divided.seconds["exchange of parameters and gradients"]
    assert exchanged == pytest.approx(3 / 2 * passes * whole.seconds["exchange of gradients"])
    assert any("gathers of the divided model" in note for note in divided.notes)
    alone = gpu_plan(corpus, shard=True)
    assert alone.memory == gpu_plan(corpus).memory


def test_passes_are_over_the_text_of_the_corpus(corpus):
    once, three = (gpu_plan(corpus, steps=None, passes=passes) for passes in (1, 3))
    assert once.passes == pytest.approx(1, abs=0.2)
    assert three.steps == pytest.approx(3 * once.steps, abs=2)


def test_the_tokens_of_a_text_are_those_of_a_corpus_built_from_it(corpus, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    for number in range(3):
        documents = ["a b c . d e f ." * (number + 1)] * 500
        (text / f"{number}.txt").write_text("\n\n".join(documents), encoding="utf-8")
    size = sum(path.stat().st_size for path in text.iterdir())
    with bertsmith.quiet():
        built = bertsmith.build_corpus([text], Corpus.open(corpus).tokenizer, tmp_path / "built", held_out=0.0)
    plan = gpu_plan(corpus, steps=None, passes=2, text=str(text))
    assert (plan.text.bytes, plan.corpus_tokens) == (size, built["tokens"])
    assert plan.passes == pytest.approx(2, abs=0.2)
    much = gpu_plan(corpus, text=str(text), gigabytes=1000)
    assert much.corpus_tokens == pytest.approx(built["tokens"] * 1e12 / size)
    shards = Corpus.open(corpus).manifest["shards"]
    per_token = sum(shard["bytes"] for shard in shards) / sum(shard["tokens"] for shard in shards)
    assert much.text.corpus_bytes == pytest.approx(per_token * much.corpus_tokens)
    assert (
        f"were measured on {size / 1e3:,.0f} kB, all that --text has; on less than 8 MB they are rough" in much.notes[0]
    )
    assert "rough" not in " ".join(plan.notes)  # the rates are those of the text itself
    with pytest.raises(ConfigError, match=r"`gigabytes` of at least .*; found 1e-06"):
        gpu_plan(corpus, text=str(text), gigabytes=1e-6)
    seconds = much.to_dict()["text"]["seconds"]
    assert seconds["vocab"] * much.text.vocabulary_rate == pytest.approx(1e12)
    assert seconds["corpus"] * much.text.corpus_rate * much.text.workers == pytest.approx(1e12)
    lines = dict(line.split(": ", 1) for line in much.lines())
    assert f" for 1,000 GB of text at {much.text.vocabulary_rate / 1e6:.3g} MB/s" in lines["vocab"]
    assert f", {much.text.corpus_bytes / 1e9:,.4g} GB on disk" in lines["corpus"]
    assert gpu_plan(corpus).to_dict()["text"] is None


def test_a_row_group_of_parquet_is_planned_for_as_the_same_text(corpus, tmp_path, monkeypatch):
    documents = [f"a b c . d e f . {'a b ' * (number % 100)}" for number in range(12_000)]  # several blocks
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    pq.write_table(pa.table({"text": documents}), tmp_path / "text.parquet")
    tokens = gpu_plan(corpus, text=str(tmp_path / "text.txt")).corpus_tokens
    monkeypatch.setattr("bertsmith.training.planning.text._MEASURED_BYTES", 1)
    assert gpu_plan(corpus, text=str(tmp_path / "text.parquet")).corpus_tokens == tokens


def test_text_without_tokens_is_not_planned_for(corpus, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match="found none in its first megabytes"):
        gpu_plan(corpus, text=str(tmp_path / "empty.txt"))


def test_a_gpu_that_is_not_here_is_estimated_from_its_peak(corpus):
    plan = gpu_plan(corpus, utilization=0.5)
    assert plan.precision == "bf16"
    assert plan.rates.seconds_per_step == pytest.approx(plan.work.total / (0.5 * GPUS["h200"].half * 1e12))
    assert plan.available == 141e9
    assert any("estimate" in note for note in plan.notes)
    assert gpu_plan(corpus, device="t4").precision == "fp32"


def test_more_processes_share_the_steps_and_exchange_their_gradients(corpus):
    alone, eight = gpu_plan(corpus), gpu_plan(corpus, machines=2, processes=4, bandwidth=10, price=3)
    exchanged = 2 * 7 / 8 * 4 * alone.parameters / 10e9 * 1000
    assert eight.seconds["steps"] == pytest.approx(alone.seconds["steps"] / 8)
    assert eight.seconds["exchange of gradients"] == pytest.approx(exchanged)
    assert eight.price == pytest.approx(2 * 3 * eight.hours)
    assert alone.price is None
    assert "exchange of gradients" not in alone.seconds


def test_processes_on_the_cores_of_one_machine_share_them(corpus, measured):
    with bertsmith.quiet():
        two = plan_pretraining(
            corpus, **RUN, device="cpu", precision="fp32", steps=50, processes=2, probe_seconds=0.1, bandwidth=10**6
        )
    assert two.seconds["steps"] == pytest.approx(50 * two.rates.seconds_per_step)
    assert two.available == measured.available // 2


def test_the_steps_of_a_budget_in_minutes_are_those_that_fit():
    training = TrainSettings(minutes=10, evaluate_every=100, save_minutes=None)
    steps = steps_of(training, DURATIONS, 20.0, 1000)
    usable = 600 * (1 - RESERVE) - 20
    assert steps == int((usable - 2 * 3 - 10) / (2 + 10 / 100))
    assert steps_of(TrainSettings(tokens=5000), DURATIONS, 0, 1000) == 5
    assert steps_of(TrainSettings(steps=7), DURATIONS, 0, 1000) == 7
    with pytest.raises(ConfigError, match=r"expected a budget long enough for one step; found 0\.1 minutes"):
        steps_of(TrainSettings(minutes=0.1), DURATIONS, 0, 1000)


def test_the_seconds_of_a_run_count_what_the_loop_does():
    training = TrainSettings(steps=100, evaluate_every=30, save_every=40, save_minutes=1.0, evaluate_at_start=False)
    seconds = seconds_of(100, training, DURATIONS, 5.0)
    assert seconds["evaluations"] == 4 * 10  # 30, 60, 90 and 100
    # Two by steps, one at the end, four by time in 245 seconds, and the model folder.
    assert seconds["checkpoints"] == pytest.approx((2 + 1 + 4 + 1 / 3) * 3)
    assert (seconds["start"], seconds["steps"]) == (5, 200)


def test_a_plan_is_read_where_the_gpu_is_not(corpus, measured, tmp_path):
    path = file_with(tmp_path / "rates.json", json.dumps(measured.to_dict()))
    again = plan_pretraining(corpus, **RUN, rates=str(path), steps=500)
    assert again.rates.seconds_per_step == pytest.approx(measured.rates.seconds_per_step, abs=1e-6)
    assert again.rates.source == "read"
    assert again.precision == "fp32"
    assert (again.rates.kind, again.memory, again.available) == ("cpu", measured.memory, measured.available)
    for name, value in {"max_length": 32, "rows_per_step": 16, "objective": "mlm+nsp", "optimizer": "lamb"}.items():
        with pytest.raises(InputError, match=f"expected a plan with {name} = {re.escape(repr(value))}; found"):
            plan_pretraining(corpus, **{**RUN, name: value}, rates=str(path), steps=5)
    with pytest.raises(InputError, match="found one with"):
        plan_pretraining(corpus, **{**RUN, "size": "mini"}, rates=str(path), steps=5)
    with pytest.raises(InputError, match="found one with"):
        plan_pretraining(corpus, **RUN, rates=str(path), precision="bf16", steps=5)
    path.write_text('{"parameters": 3}', encoding="utf-8")
    with pytest.raises(InputError, match=r"expected a plan in .*; found no precision"):
        plan_pretraining(corpus, **RUN, rates=str(path), steps=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": "huge"}, "unknown model size 'huge'"),
        ({"device": "h2000"}, "the name of a GPU; found 'h2000'"),
        ({"device": "h200", "precision": "fp16"}, "found fp16, whose gradients underflow"),
        ({"machines": 0}, "machines must be above 0"),
        ({"utilization": 1.5}, "utilization must be above 0 and at most 1"),
        ({"price": -1.0}, "price must be at least 0"),
        ({"device": "h200", "rates": "x.json"}, 'found `rates` with `device="h200"`'),
        ({"device": "t4", "precision": "bf16"}, "expected a precision that t4 has a peak for; found bf16"),
        ({"device": "cuda:x"}, "expected a CUDA device"),
        (
            {"device": "h200", "activation_checkpointing": True},
            "found `activation_checkpointing=True`; plan it on a machine",
        ),
        ({"gigabytes": 5}, "`gigabytes` needs `text`"),
        ({"text": "x.txt", "gigabytes": 0}, "gigabytes must be above 0"),
        ({"text": "x.txt"}, "expected a file or folder at 'x.txt'"),
        ({"text": "-"}, "found stdin; save the text to a file"),
        ({"size": None}, "expected one of a model size"),
        ({"sise": "tiny"}, "unknown setting 'sise'"),
    ],
)
def test_what_does_not_fit_is_refused(corpus, settings, message):
    with pytest.raises(BertsmithError, match=message):
        plan_pretraining(corpus, **{**RUN, "device": "cpu", "steps": 5, **settings})


def test_a_measured_plan_says_once_that_little_text_is_held_out(corpus, monkeypatch, capsys):
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    plan_pretraining(corpus, **RUN, device="cpu", precision="fp32", steps=5, probe_seconds=0.1)
    assert capsys.readouterr().err.count("held out: ") == 1


def test_a_run_of_about_one_pass_and_less_than_a_second_reads_well(corpus):
    plan = dataclasses.replace(gpu_plan(corpus), passes=1.0004, seconds={"steps": 3.4e-5})
    lines = dict(line.split(": ", 1) for line in plan.lines())
    assert lines["run"].endswith(", 1 pass over the corpus")
    assert lines["time"].startswith("less than 1 s on 1 machine")


def test_a_folder_that_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(BertsmithError, match="corpus"):
        plan_pretraining(tmp_path, size="tiny", device="h200", steps=5)


def test_the_lines_say_what_the_json_says(corpus):
    plan = gpu_plan(corpus, price=2.5, steps=10**9)
    text, values = "\n".join(plan.lines()), plan.to_dict()
    assert f"{values['hours']:.3g} hours" in text
    assert f"price {values['price']:,.2f}" in text
    assert "estimated at 35% of the peak" in text
    assert values["bytes"]["total"] == plan.memory.total
