"""Training on pairs: the loss, any split of a step, resumed = straight, a task that is learned, bad input."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError, RunError
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.models.checkpoints.architectures import ENCODER_DECODERS, new_encoder_decoder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.lstm_encoder_decoder import LstmConfig
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.head_inputs import SCORES
from bertsmith.models.parts.scored_attention import new_score
from bertsmith.recipes.translation.decoding import translate
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.pairs import encode_pairs, read_pairs
from bertsmith.recipes.translation.request import TrainTranslationRequest
from bertsmith.recipes.translation.run import request_to_resume, train_translation
from bertsmith.recipes.translation.settings import ARCHITECTURES, SearchSettings, TranslationSettings
from bertsmith.recipes.translation.workload import TranslationTraining
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from training.interruptions import assert_same_files, killed_at_evaluation
from training.whole_steps import assert_same_step, whole_step
from written_files import file_with

TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"abcdef"]))


def pairs(count: int, seed: int = 0, longest: int = 5) -> list[tuple[str, str]]:
    """Letters, and the same letters in reverse."""
    rng = np.random.default_rng(seed)
    words = [rng.choice(list("abcdef"), rng.integers(1, longest + 1)).tolist() for _ in range(count)]
    return [(" ".join(row), " ".join(row[::-1])) for row in words]


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return path


def work(
    *,
    micro_tokens: int = 4096,
    dropout: float = 0.0,
    smoothing: float = 0.0,
    rows: int = 8,
    architecture: str | None = None,
) -> TranslationTraining:
    settings = TranslationSettings(
        architecture=architecture,
        rows_per_step=rows,
        micro_tokens=micro_tokens,
        dropout=dropout,
        label_smoothing=smoothing,
    )
    encoded = encode_pairs(pairs(20), TOKENIZER, 128, "pairs")
    model = new_encoder_decoder(settings.config(len(TOKENIZER.vocabulary)), seed=1).double()
    return TranslationTraining(
        model, encoded, (pairs(6, 3), encode_pairs(pairs(6, 3), TOKENIZER, 128, "dev")), TOKENIZER,
        choose("cpu", "fp64"), settings, seed=5,
    )  # fmt: skip


def test_the_loss_is_that_of_each_next_piece_pair_by_pair_with_smoothed_labels():
    workload, smoothed = work(), work(smoothing=0.1)
    (batch,) = workload.plan(0, 0, 1).micro_batches
    source = np.split(batch.source.token_ids.numpy(), np.cumsum(batch.source.lengths)[:-1])
    target = np.split(batch.target.token_ids.numpy(), np.cumsum(batch.target.lengths)[:-1])
    plain = smooth = 0.0
    count, vocabulary = 0, len(TOKENIZER.vocabulary)
    for texts in zip(source, target, strict=True):
        with torch.no_grad():
            rows = [Batch.from_rows([ids]) for ids in texts]
            log_probabilities = workload.model(*rows).log_softmax(1)
        for position, gold in enumerate([*texts[1][1:], TOKENIZER.vocabulary.sep_id]):
            plain -= float(log_probabilities[position, gold])
            smooth -= 0.9 * float(log_probabilities[position, gold])
            smooth -= 0.1 / vocabulary * float(log_probabilities[position].sum())
            count += 1
        assert texts[0][1:-1].tolist() == texts[1][1:][::-1].tolist(), "the target is the reverse of the source"
    total, sums, _ = whole_step(workload, 0)
    assert total == pytest.approx(plain / count)
    assert sums["piece_nll"] == pytest.approx(plain)
    result, sums, _ = whole_step(smoothed, 0)
    assert result == pytest.approx(smooth / count)
    assert sums["piece_nll"] == pytest.approx(plain), "the log has the loss without smoothing"


def test_an_evaluation_reads_only_the_first_pairs_of_the_dev_file():
    every, first = work(), work()
    first.settings = dataclasses.replace(first.settings, evaluation_pairs=2)
    assert (every.scored_pairs, first.scored_pairs) == (6, 2)
    expected = work()
    expected.dev = pairs(6, 3)[:2], encode_pairs(pairs(6, 3)[:2], TOKENIZER, 128, "dev")
    scores = first.evaluate(first.model)
    assert scores == pytest.approx(expected.evaluate(expected.model))
    assert scores["loss"] != pytest.approx(every.evaluate(every.model)["loss"])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_gradient_of_a_step_is_the_same_however_it_is_split(architecture):
    chosen = {"dropout": 0.2, "smoothing": 0.1, "architecture": architecture}
    whole = whole_step(work(**chosen), 2)
    for micro_tokens in (40, 1):
        assert_same_step(whole_step(work(**chosen, micro_tokens=micro_tokens), 2), whole)


def test_each_epoch_reads_every_pair_once_in_an_order_of_its_own():
    workload = work(rows=5)
    read = []
    for step in range(8):
        (batch,) = workload.plan(step, 0, 1).micro_batches
        rows = batch.source.token_ids.split(batch.source.lengths)
        places = np.argsort(batch.source.row_ids)
        read += [tuple(rows[index].tolist()) for index in places]
    everything = sorted(tuple(row.tolist()) for row in workload.pairs.sources)
    assert sorted(read[:20]) == sorted(read[20:]) == everything
    assert read[:20] != read[20:]
    assert [batch.target.num_rows for batch in work(rows=45).plan(0, 0, 1).micro_batches] == [45]


def test_figures_on_dev_pairs_have_perplexity_and_bleu():
    workload = work()
    workload.model.eval()
    figures = workload.evaluate(workload.model)
    assert figures["perplexity"] == pytest.approx(np.exp(figures["loss"]))
    assert set(figures) == set(workload.higher_is_better())


def settings(**changes: object) -> dict:
    return {"pieces": 11, "rows_per_step": 16, "device": "cpu", "precision": "fp32", "log_every": 5, **changes}


@pytest.mark.parametrize("architecture", [{}, *({"architecture": "lstm", "score": score} for score in SCORES)])
def test_a_resumed_run_is_the_straight_run_bit_for_bit(tmp_path, architecture):
    source, dev = write(tmp_path / "pairs.tsv", pairs(60)), write(tmp_path / "dev.tsv", pairs(8, 1))
    chosen = settings(steps=7, save_every=2, evaluate_every=5, **architecture)
    train_translation(source, tmp_path / "straight", dev=dev, **chosen)
    with killed_at_evaluation(5):
        train_translation(source, tmp_path / "broken", dev=dev, **chosen)
    assert "pieces = 11" in (tmp_path / "broken/request.toml").read_text()
    started, again = TrainTranslationRequest(source, "run", **chosen), request_to_resume(tmp_path / "broken")
    assert (again.part(TranslationSettings), again.training) == (started.part(TranslationSettings), started.training)
    train_translation(out=tmp_path / "broken", resume=True)
    last = "checkpoints/step-00000007"
    names = ("model.safetensors", "optimizer.safetensors")
    assert_same_files(tmp_path / "straight" / last, tmp_path / "broken" / last, *names)
    with pytest.raises(RunError, match="settings that the run"):
        train_translation(source, tmp_path / "broken", dev=dev, resume=True, **settings(steps=9, **architecture))


@pytest.fixture(scope="module", params=[("transformer", 400), ("lstm", 60)], ids=lambda param: param[0])
def trained(tmp_path_factory, request) -> Path:
    architecture, steps = request.param
    folder = tmp_path_factory.mktemp("trained")
    source, dev = write(folder / "pairs.tsv", pairs(400, longest=4)), write(folder / "dev.tsv", pairs(30, 7, longest=4))
    chosen = settings(steps=steps, dropout=0.0, rows_per_step=32, learning_rate=2e-3, architecture=architecture)
    result = train_translation(source, folder / "run", dev=dev, **chosen)
    assert result.scores["held_out_accuracy"] > 0.9
    assert result.scores["held_out_bleu"] > 0.5
    assert "## Scores on 30 dev pairs" in (folder / "run/model/README.md").read_text()
    return folder / "run"


def test_letters_are_reversed_and_a_saved_model_translates_as_the_trained_one(trained, tmp_path):
    model, tokenizer = read_translation_model(trained)
    unseen = [pair for pair in pairs(60, 9, longest=4) if len(pair[0]) > 3][:20]
    for beam in (1, 3):
        result = translate(model, tokenizer, [source for source, _ in unseen], SearchSettings(beam=beam))
        right = [translation.text == target for translation, (_, target) in zip(result, unseen, strict=True)]
        assert np.mean(right) > 0.8
        assert all(translation.has_ended for translation in result)
    metadata = read_json(trained / "model/bertsmith.json")
    assert metadata["task"] == "translation"
    assert metadata["steps"] == (60 if model.config.model_type == "lstm" else 400)
    assert f"# {model.config.display_name} for translation" in (trained / "model/README.md").read_text()


@pytest.mark.parametrize("score", SCORES)
def test_a_model_is_read_from_its_folder_with_the_same_weights_and_score(tmp_path, score):
    source = write(tmp_path / "pairs.tsv", pairs(20))
    chosen = settings(steps=2, save_every=2, architecture="lstm", score=score)
    train_translation(source, tmp_path / "run", **chosen)
    model, tokenizer = read_translation_model(tmp_path / "run")
    config = model.config
    assert isinstance(config, LstmConfig)
    assert (config.score, config.vocab_size) == (score, len(tokenizer.vocabulary))
    saved = load_file(tmp_path / "run/checkpoints/step-00000002/model.safetensors")
    assert saved.keys() == model.state_dict().keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())


def test_an_lstm_that_reverses_letters_looks_at_them_from_the_last_to_the_first(tmp_path):
    source = write(tmp_path / "pairs.tsv", pairs(400, longest=4))
    chosen = settings(steps=80, dropout=0.0, rows_per_step=32, learning_rate=2e-3, architecture="lstm")
    train_translation(source, tmp_path / "run", **chosen)
    model, tokenizer = read_translation_model(tmp_path / "run")
    rows = encode_pairs([("a b c d", "d c b a"), ("f e a c", "c a e f")], tokenizer, 128, "pairs")
    texts = Batch.from_rows(rows.sources), Batch.from_rows([row[:-1] for row in rows.targets])
    for weights in model.alignments(*texts):
        assert weights[:4].argmax(1).tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc d\n", "a tab and another text in line 2 of .*found 1 cell"),
        ("a\tb\tc\n", "line 1 of .*found 3 cells"),
        ("a\t \n", "line 1 of"),
        ("", "an empty file"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path, text, message):
    path = file_with(tmp_path / "pairs.tsv", text)
    with pytest.raises(InputError, match=message):
        read_pairs(path)


def test_pairs_in_another_encoding_train_the_model_of_their_text(tmp_path):
    text = "".join(f"{source}\t{target}\n" for source, target in [("caf\u00e9", "\u00e9t\u00e9"), *pairs(20)])
    weights = {}
    for encoding in ("utf-8", "cp1252"):
        path, out = tmp_path / f"{encoding}.tsv", tmp_path / encoding
        path.write_bytes(text.encode(encoding))
        if encoding != "utf-8":
            with pytest.raises(InputError, match=r"0xe9 in line 1, not UTF-8.*--encoding cp1252"):
                read_pairs(path)
        train_translation(path, out, encoding=encoding, pieces=60, steps=2)
        weights[encoding] = load_file(out / "model" / "model.safetensors")
        assert request_to_resume(out).part(TranslationSettings) == TranslationSettings(encoding=encoding, pieces=60)
        assert read_json(out / "settings.json")["settings"]["run"]["encoding"] == encoding
    assert all(torch.equal(tensor, weights["utf-8"][name]) for name, tensor in weights["cp1252"].items())


def test_long_pairs_are_left_out_and_counted(capsys):
    result = encode_pairs([("a", "b"), ("a b c d", "a")], TOKENIZER, 4, "pairs.tsv")
    assert len(result) == 1
    assert "1 pair of 2 left out, with more than 4 tokens on a side" in capsys.readouterr().err
    with pytest.raises(InputError, match="pairs of texts of at most 3 tokens"):
        encode_pairs([("a b", "b a")], TOKENIZER, 3, "pairs.tsv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1"),
        ({"size": "huge"}, "unknown model size"),
        ({"beam": 3}, "unknown setting"),
        ({"positions": "rotary"}, "position_embedding_type"),
        ({"max_length": 2}, "max_length must be at least 3"),
        ({"architecture": "gru"}, "unknown architecture 'gru'; use one of 'lstm', 'transformer'"),
        ({"architecture": ""}, "unknown architecture ''; use one of"),
        ({"architecture": "lstm", "score": "cosine"}, "unknown score 'cosine'"),
        ({"score": "dot"}, "no score for the architecture 'transformer'; found 'dot'"),
        ({"architecture": "lstm", "positions": "none"}, "no positions for the architecture 'lstm'; found 'none'"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path, options, message):
    source = write(tmp_path / "pairs.tsv", pairs(5))
    with pytest.raises(ConfigError, match=message):
        train_translation(source, tmp_path / "run", **settings(steps=1, **options))


def test_the_names_of_the_settings_are_those_of_the_models():
    assert set(ARCHITECTURES) == set(ENCODER_DECODERS)
    assert all(new_score(name, 4, 4).prepare(torch.zeros(3, 4)).shape == (3, 4) for name in SCORES)
    with pytest.raises(ConfigError, match="unknown score"):
        TranslationSettings(architecture="lstm", score="cosine")


def test_the_rates_are_those_of_the_paper():
    request = TrainTranslationRequest("pairs.tsv", "run", size="base", steps=100_000, warmup_steps=4000)
    training = request.training
    assert (training.schedule, training.beta2, training.epsilon) == ("noam", 0.98, 1e-9)
    assert training.learning_rate == pytest.approx(512**-0.5 * 4000**-0.5, abs=1e-6)
    assert request.part(TranslationSettings).config(37_000).num_parameters() == 63_082_496


def test_another_model_or_damaged_weights_are_refused(trained, tmp_path, monkeypatch):
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    with pytest.raises(ConfigError, match=r"a translation model in .*found model_type 'bert'"):
        read_translation_model(tmp_path)
    for path in (trained / "model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    values = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", {**values, "num_hidden_layers": 1})
    with pytest.raises(CheckpointError, match=r"missing or unknown, the first 'decoder\.1"):
        read_translation_model(tmp_path)
    with pytest.raises(BertsmithError):
        read_translation_model(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="an encoder with a decoder; use it with `bertsmith translate`"):
        load_any(trained)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(ConfigError, match="one process for a translation model"):
        train_translation("pairs.tsv", tmp_path / "run", **settings(steps=1))
