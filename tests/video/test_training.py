"""A BERT of texts with codes: its rows, its loss, frozen rows, resumed = straight, what is learned, bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertsmith
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.frozen_rows import TableWithFrozenRows
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.recipes.video import run
from bertsmith.recipes.video.growth import WORD_TABLE, CodePieces, fitted, grown
from bertsmith.recipes.video.reader import VideoReader
from bertsmith.recipes.video.rows import ALIGNED, MISALIGNED, NO_LABEL, NOTHING, EncodedSegments, RowDrawer, packed
from bertsmith.recipes.video.segments import Segment
from bertsmith.recipes.video.settings import VideoSettings
from bertsmith.recipes.video.workload import VideoTraining
from bertsmith.text.codes.feature_words import FeatureWords
from training.interruptions import assert_same_files, interrupted
from training.whole_steps import whole_step
from video.sample_videos import NOUNS, VERBS, write_base_model, write_videos

FEW = {"steps": 8, "rows_per_step": 8, "device": "cpu", "evaluate_every": 4, "subsample": 2}
TEXT = "now let me show you how to [MASK] the [MASK]"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Features, words, events, captions and a model to start from."""
    folder = tmp_path_factory.mktemp("videos")
    features, captions = write_videos(folder, videos=60)
    words, events = folder / "words.safetensors", folder / "events.csv"
    bertsmith.cluster_features([features], words, depth=2, branching=4)
    bertsmith.assign_words(words, [features], events)
    return {"segments": captions, "events": events, "words": words, "init": write_base_model(folder / "base")}


@pytest.fixture(scope="module")
def trained(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """A run that has learned, and its scores."""
    out = tmp_path_factory.mktemp("run") / "run"
    settings = {"join": 0.0, "text_only": 0.1, "codes_only": 0.0, "subsample": 1}
    result = bertsmith.train_video(**files, out=out, epochs=90, learning_rate=3e-3, device="cpu", **settings)
    return out, dict(result.scores)


def small(files: dict[str, Path], **settings: Any) -> tuple[VideoTraining, EncodedSegments, CodePieces]:
    """A workload in double precision."""
    folder = grown(load_any(files["init"]), ["x", "y", "z", "u"], None, seed=1)
    tokenizer = folder.require_tokenizer()
    codes = CodePieces.of(tokenizer, "here")
    segments = EncodedSegments(
        [Segment(f"v{n // 4}", f"{VERBS[n % 3]} the {NOUNS[n % 2]}", tuple("xyzu"[n % 4 :])) for n in range(16)],
        tokenizer,
        codes,
    )
    model = load_pretrained(folder).model.double()
    runtime = choose("cpu", "fp64")
    workload = VideoTraining(model, tokenizer, codes, segments, segments, runtime, VideoSettings(**settings), seed=5)
    return workload, segments, codes


def test_the_number_of_parameters_of_bert_large_with_visual_words_is_that_of_the_paper() -> None:
    config = BertConfig(
        vocab_size=30522 + 12**4 + 1, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=4096,
    )  # fmt: skip
    with torch.device("meta"):
        model = TransformerEncoder(config, seed=None)
    assert sum(parameter.numel() for parameter in model.parameters()) == 356_376_576


def test_rows_have_the_text_before_the_codes_and_their_segments(files: dict[str, Path]) -> None:
    workload, segments, codes = small(files)
    tokenizer = workload.tokenizer
    rows = [
        row._replace(label=NO_LABEL)
        for row in RowDrawer(segments, VideoSettings(rows_per_step=40, join=0.0), 1).step_rows(0)
    ]
    flat, order = packed(rows, tokenizer, codes, 64, 64)
    cls, sep = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
    assert sorted(order) == list(range(40))
    kinds = set()
    for row, number in enumerate(order):
        ids, segment_ids = flat.row(row)
        text, of_codes = rows[number].text.tolist(), rows[number].codes.tolist()
        kinds.add((bool(text), bool(of_codes)))
        if of_codes:
            assert ids.tolist() == [cls, *text, codes.first - 1, *of_codes, sep]
            assert segment_ids.tolist() == [0] * (len(text) + 2) + [1] * (len(of_codes) + 1)
        else:
            assert ids.tolist() == [cls, *text, sep]
            assert not segment_ids.any()
    assert kinds == {(True, True), (True, False), (False, True)}


def test_the_draws_of_a_step_keep_their_shares_and_depend_on_the_step_alone(files: dict[str, Path]) -> None:
    _, segments, _ = small(files)
    settings = VideoSettings(rows_per_step=3000, text_only=0.2, codes_only=0.3, misaligned=0.4, join=0.5, subsample=3)
    rows = RowDrawer(segments, settings, 1).step_rows(4)
    again = RowDrawer(segments, settings, 1).step_rows(4)
    assert all(np.array_equal(a.codes, b.codes) and a.key == b.key for a, b in zip(rows, again, strict=True))
    labels = np.array([row.label for row in rows])
    text_only = np.array([not len(row.codes) for row in rows])
    assert abs(text_only.mean() - 0.2) < 0.03
    assert abs(((labels == NO_LABEL) & ~text_only).mean() - 0.3) < 0.03
    assert abs((labels == MISALIGNED).mean() - 0.2) < 0.03
    assert abs((labels == ALIGNED).mean() - 0.3) < 0.03
    texts = [len(row.text) for row in rows if len(row.text)]
    assert set(texts) == {3, 6}  # three pieces each; the last segment of a subject has no next one
    assert abs(np.mean(np.array(texts) == 6) - 0.5 * 3 / 4) < 0.03


def test_the_loss_of_a_step_is_that_of_its_rows_one_by_one(files: dict[str, Path]) -> None:
    workload, _, codes = small(files, rows_per_step=12, text_only=0.2, codes_only=0.2, subsample=1)
    work = workload._with_targets(workload._drawer.step_rows(3), 3)
    rows, targets = work.rows, work.targets
    starts = np.cumsum(rows.lengths) - rows.lengths
    masked_loss, judged_loss, count, judged = 0.0, 0.0, 0, 0
    first = 0
    for row, (start, length) in enumerate(zip(starts, rows.lengths, strict=True)):
        number = int(targets.per_row[row])
        positions = targets.positions[first : first + number] - start
        gold = torch.from_numpy(targets.target_ids[first : first + number].astype(np.int64))
        first += number
        assert codes.first - 1 not in gold.tolist(), "[>] is never masked"
        part = slice(start, start + length)
        batch = Batch.from_flat(targets.token_ids[part], rows.segment_ids[part], [length])
        with torch.no_grad():
            output = workload.model(batch, masked=torch.from_numpy(positions), first=torch.tensor([0]))
        label = int(rows.labels[row])
        if label != MISALIGNED:
            masked_loss += float(torch.nn.functional.cross_entropy(output.mlm_logits, gold, reduction="sum"))
            count += number
        if label != NO_LABEL:
            judged_loss -= float(output.nsp_logits.log_softmax(1)[0, label])
            judged += 1
    assert judged
    assert {ALIGNED, MISALIGNED, NO_LABEL} == set(rows.labels.tolist())
    loss, sums, _ = whole_step(workload, 3)
    assert loss == pytest.approx(masked_loss / count + judged_loss / judged, rel=1e-6)
    assert sums["text_count"] + sums["codes_count"] == count
    assert sums["alignment_count"] == judged


def test_frozen_rows_do_not_change_and_the_others_do(files: dict[str, Path], tmp_path: Path) -> None:
    """Whatever the optimizer and the weight decay."""
    start = load_any(files["init"])
    pieces = len(start.require_tokenizer().vocabulary)
    centroids = FeatureWords.load(files["words"]).centroids
    for name, freeze, optimizer in (("frozen", True, "adam"), ("lamb", True, "lamb"), ("trained", False, "adam")):
        bertsmith.train_video(**files, out=tmp_path / name, **FEW, freeze=freeze, optimizer=optimizer, weight_decay=0.5)
        table = load_any(tmp_path / name).tensors[WORD_TABLE]
        length = float(start.tensors[WORD_TABLE].norm(dim=1).mean())
        expected = torch.from_numpy(fitted(centroids, 32, length))
        assert torch.equal(table[pieces + 1 :], expected) == freeze
        assert not torch.equal(table[:pieces], start.tensors[WORD_TABLE][:pieces])
        assert not torch.equal(table[pieces], expected[0])


def test_centers_keep_their_distances_as_rows_of_a_wider_or_a_narrower_table() -> None:
    source = np.random.default_rng(0)
    for width, features in ((12, 7), (6, 20)):
        centroids = (source.standard_normal((30, 5)) @ source.standard_normal((5, features)) + 3).astype(np.float32)
        rows = fitted(centroids, width, 2.0)
        assert rows.shape == (30, width)
        assert np.linalg.norm(rows, axis=1).mean() == pytest.approx(2, rel=1e-5)
        distances = [np.linalg.norm(table[:, None] - table[None], axis=2) for table in (centroids, rows)]
        ratio = distances[1][0, 1] / distances[0][0, 1]
        np.testing.assert_allclose(distances[1], ratio * distances[0], rtol=1e-3, atol=1e-4)


def test_a_table_with_frozen_rows_gives_gradients_to_the_others() -> None:
    table = TableWithFrozenRows(torch.arange(8.0).reshape(4, 2), first=3)
    assert torch.equal(table.weight, torch.arange(8.0).reshape(4, 2))
    table.weight.sum().backward()
    assert [name for name, _ in table.named_parameters()] == ["trained"]
    assert torch.equal(table.trained.grad, torch.ones(3, 2))


@pytest.mark.parametrize("stopped", [3, 6])
def test_a_resumed_run_ends_as_a_straight_one(files: dict[str, Path], tmp_path: Path, stopped: int) -> None:
    bertsmith.train_video(**files, out=tmp_path / "straight", **FEW, save_every=1)
    with interrupted(VideoTraining, "plan", lambda self, step, *_: step > stopped):
        bertsmith.train_video(**files, out=tmp_path / "resumed", **FEW, save_every=1)
    bertsmith.train_video(out=tmp_path / "resumed", resume=True)
    assert_same_files(tmp_path / "straight", tmp_path / "resumed", "model/model.safetensors", "model/bertsmith.json")


def test_actions_and_objects_are_named_without_training_on_questions(
    trained: tuple[Path, dict[str, float]], files: dict[str, Path]
) -> None:
    out, scores = trained
    assert scores["held_out_text_loss"] < 0.6 * scores["held_out_text_alone_loss"]
    assert scores["held_out_alignment_accuracy"] > 0.7
    reader = VideoReader.load(out)
    features, captions = write_videos(out.parent / "new", videos=12, seed=8)
    bertsmith.assign_words(files["words"], [features], out.parent / "new/events.csv")
    segments = run.read_segments(captions, out.parent / "new/events.csv")
    assert len(segments) == 60
    ids = [reader.code_ids(segment.codes, segment.location) for segment in segments]
    chances = reader.word_chances(TEXT, [NOTHING, *ids])
    np.testing.assert_allclose(chances.sum(axis=2), 1, rtol=1e-4)
    pieces = np.array(reader.tokenizer.vocabulary.pieces)
    best = pieces[chances.argmax(axis=2)]
    gold = np.array([[segment.text.split()[7], segment.text.split()[9]] for segment in segments])
    assert (best[1:] == gold).mean() > 0.8
    assert (best[0] == gold).mean() < 0.6
    for number in (0, 17):  # alone as among others
        alone = reader.word_chances(TEXT, [ids[number]])
        np.testing.assert_allclose(alone[0], chances[1 + number], rtol=1e-3, atol=1e-6)


def test_the_answers_of_the_public_functions(
    trained: tuple[Path, dict[str, float]], files: dict[str, Path], tmp_path: Path
) -> None:
    out, _ = trained
    about = {"model": out, "segments": files["segments"], "events": files["events"], "device": "cpu"}
    segments = run.read_segments(files["segments"], files["events"])
    fillings = bertsmith.fill_codes(**about, text=TEXT, top=3)
    assert len(fillings) == len(segments) == 300
    alone = bertsmith.fill_codes(out, TEXT, codes=" ".join(segments[0].codes), top=3, device="cpu")
    assert [[word.piece for word in gap] for gap in alone[0].gaps] == [
        [word.piece for word in gap] for gap in fillings[0].gaps
    ]
    assert fillings[0].alone == fillings[1].alone
    scores = bertsmith.match_codes(**about)
    assert (scores.segments, scores.candidates) == (300, 50)
    assert scores.alignment_accuracy > 0.7
    assert scores.codes_of_text["recall@10"] > 0.5
    assert scores.text_of_codes["recall@10"] > 0.5
    matches = bertsmith.match_codes(**about, text=segments[3].text, top=10)
    assert matches == sorted(matches, key=lambda match: -match.probability)
    assert sum(match.text == segments[3].text for match in matches) >= 5
    back = bertsmith.match_codes(**about, codes=" ".join(segments[3].codes), top=10)
    assert sum(match.text == segments[3].text for match in back) >= 5
    codes = bertsmith.next_codes(out, " ".join(segments[0].codes), text=segments[0].text, top=4, device="cpu")
    assert len(codes) == 4
    assert codes[0][0] in segments[0].codes
    assert bertsmith.code_features(**about, out=tmp_path / "x.npy") == (300, 64)
    vectors = np.load(tmp_path / "x.npy")
    reader = VideoReader.load(out, "cpu")
    (vector,) = reader.features("let me show you how to [MASK]", [reader.code_ids(segments[5].codes)])
    assert vector.shape == (64,)
    (again,) = reader.features(bertsmith.recipes.video.request.FEATURE_TEMPLATE, [reader.code_ids(segments[5].codes)])
    np.testing.assert_allclose(again, vectors[5], rtol=1e-3, atol=1e-5)


def test_the_model_is_a_plain_bert_with_more_rows(trained: tuple[Path, dict[str, float]]) -> None:
    model = bertsmith.load(trained[0])
    pieces = model.tokenizer.vocabulary.pieces
    assert pieces.count("[>]") == 1
    assert model.fill([TEXT], top=2)[0][0][0].piece
    ours = load_pretrained(load_any(trained[0])).model
    theirs = transformers.BertForPreTraining.from_pretrained(trained[0] / "model", attn_implementation="eager").eval()
    codes = CodePieces.of(model.tokenizer, "here")
    ids = [
        2,
        *model.tokenizer.encode_batch(["cut the pan"])[0].tolist(),
        codes.first - 1,
        codes.first,
        codes.first + 3,
        3,
    ]
    segment_ids = [0, 0, 0, 0, 0, 1, 1, 1]
    batch = Batch.from_flat(np.array(ids, dtype=np.int32), np.array(segment_ids, dtype=np.int32), [len(ids)])
    with torch.no_grad():
        output = ours(batch, masked=torch.arange(len(ids)), first=torch.tensor([0]))
        expected = theirs(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segment_ids]))
    torch.testing.assert_close(output.mlm_logits, expected.prediction_logits[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(output.nsp_logits, expected.seq_relationship_logits, rtol=1e-4, atol=1e-4)


def test_codes_that_do_not_fit_are_cut_and_counted(
    trained: tuple[Path, dict[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    reader = VideoReader.load(trained[0])
    name = reader.codes.names[0]
    long = reader.code_ids([name] * 100)
    room = 64 - 3 - len(reader.text_ids(TEXT))
    chances = reader.word_chances(TEXT, [long, long[:room]])
    np.testing.assert_allclose(chances[0], chances[1], rtol=1e-4, atol=1e-7)
    assert "left out at the end: 1 row" in capsys.readouterr().err
    text = reader.text_ids("the pan")
    np.testing.assert_allclose(
        reader.next_codes([(text, long)])[0], reader.next_codes([(text, long[:58])])[0], rtol=1e-4, atol=1e-7
    )
    assert capsys.readouterr().err.count("left out at the start: 1 row") == 1
    assert reader.features(TEXT, [long]).shape == (1, 64)


def test_chance_is_that_of_the_candidates_of_each_segment(
    trained: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    names = VideoReader.load(trained[0]).codes.names
    lines = ["text\tcodes", *(f"{VERBS[n // 4]} the pan\t{names[n // 4]}" for n in range(5))]  # the last has other four
    (tmp_path / "s.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scores = bertsmith.match_codes(trained[0], tmp_path / "s.tsv", device="cpu")
    assert scores.candidates == 5
    assert scores.chance["recall@1"] == pytest.approx((4 / 2 + 1 / 5) / 5)
    assert scores.chance["recall@5"] == 1
    assert scores.chance["mrr"] == pytest.approx((4 * (1 + 1 / 2) / 2 + (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5) / 5) / 5)


def test_rows_longer_than_the_positions_of_the_model_are_refused_or_said_to_be_shorter(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BertsmithError, match=r"max_length of at most 64, the positions of the model; found 65"):
        bertsmith.train_video(**files, out=tmp_path / "run", **FEW, max_length=65)
    with pytest.raises(BertsmithError, match="`minimum_count`"):
        bertsmith.train_video(**{**files, "words": None}, out=tmp_path / "run", **FEW, minimum_count=10**6)
    assert "max_length reduced from 128 to 64" in capsys.readouterr().err


def test_the_codes_of_held_out_segments_are_not_trained_on(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, *lines = files["segments"].read_text(encoding="utf-8").splitlines()
    for name, chosen in (("train", lines[:250]), ("dev", lines[250:])):  # 60 videos of 5 segments
        (tmp_path / f"{name}.tsv").write_text("\n".join([header, *chosen]) + "\n", encoding="utf-8")
    tables = {"segments": tmp_path / "train.tsv", "dev": tmp_path / "dev.tsv"}
    told: list[str] = []
    monkeypatch.setattr(run, "tell", told.append)
    bertsmith.train_video(**{**files, **tables}, out=tmp_path / "run", **{**FEW, "steps": 1})
    assert any("250 segments to train on, 50 held out" in line for line in told)


def test_segments_whose_rows_are_cut_are_counted_alone_and_joined(files: dict[str, Path]) -> None:
    _, segments, _ = small(files)  # of 3 pieces and 4, 3, 2 and 1 codes, in each subject
    assert [segments.longer_than(tokens) for tokens in (6, 8, 10)] == [16, 8, 0]
    assert [segments.longer_than(tokens, joined=True) for tokens in (11, 13, 16)] == [12, 8, 0]


def test_codes_of_symbols_have_trained_rows(files: dict[str, Path], tmp_path: Path) -> None:
    lines = [
        "subject\ttext\tcodes",
        *(f"v{n // 5}\t{VERBS[n % 3]} the pan\tverb:{n % 3} noun:{n % 2}" for n in range(40)),
    ]
    (tmp_path / "s.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    bertsmith.train_video(tmp_path / "s.tsv", tmp_path / "run", init=files["init"], **FEW)
    reader = VideoReader.load(tmp_path / "run")
    assert set(reader.codes.names) == {"verb:0", "verb:1", "verb:2", "noun:0", "noun:1"}
    before = grown(load_any(files["init"]), reader.codes.names, None, seed=1).tensors[WORD_TABLE]
    assert not torch.equal(reader.model.encoder.word_table[-5:], before[-5:])


@pytest.mark.parametrize(
    ("table", "more", "message"),
    [
        ("text\tcodes\n\t\n", {}, "expected segments"),
        ("text\tcodes\nwe\t\n\tx\n", {"minimum_count": 3}, "at least 3 times"),
        ("text\nwe\n", {}, "found neither"),
        ("codes\nx\n", {}, "the column 'text'"),
        (
            "text\tcodes\nwe\tx\nthe\tx\n",
            {"text_only": 0.7, "codes_only": 0.7},
            "text_only . codes_only must be at most 1",
        ),
        ("text\tcodes\nwe\tx\nthe\tx\n", {"words": "missing.safetensors"}, "feature words"),
        ("text\tcodes\nwe\tx\n", {}, "at least two segments"),
        ("text\tcodes\n\t9.9\n\t9.8\n\t9.7\n", {"words": "words"}, "a text or a known code"),
    ],
)
def test_segments_that_cannot_be_learned_from_are_refused(
    files: dict[str, Path], tmp_path: Path, table: str, more: dict[str, Any], message: str
) -> None:
    (tmp_path / "s.tsv").write_text(table, encoding="utf-8")
    more = {name: files.get(value, value) for name, value in more.items()}
    with pytest.raises(BertsmithError, match=message):
        bertsmith.train_video(tmp_path / "s.tsv", tmp_path / "run", init=files["init"], **FEW, **more)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("v0\t5\t5\twe", "a stop after the start"),
        ("v0\tx\t5\twe", "a number or an ISO date as start"),
        ("v0\t1\t5\t", "a text"),
    ],
)
def test_times_that_are_none_are_refused(files: dict[str, Path], tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "s.tsv").write_text(f"subject\tstart\tstop\ttext\n{row}\n", encoding="utf-8")
    with pytest.raises(BertsmithError, match=message):
        run.read_segments(tmp_path / "s.tsv", files["events"])


def test_events_outside_of_all_segments_become_segments_without_a_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.tsv").write_text("subject\tstart\tstop\ttext\nv\t2\t4\twe\n", encoding="utf-8")
    events = [f"v,{time},c{time}" for time in range(40)] + ["w,0,d"]
    (tmp_path / "e.csv").write_text("\n".join(["subject,time,code", *events]) + "\n", encoding="utf-8")
    segments = run.read_segments(tmp_path / "s.tsv", tmp_path / "e.csv")
    assert [(segment.subject, segment.text, len(segment.codes)) for segment in segments] == [
        ("v", "", 2), ("v", "we", 2), ("v", "", 16), ("v", "", 16), ("v", "", 4), ("w", "", 1),
    ]  # fmt: skip
    assert segments[1].codes == ("c2", "c3")
    (tmp_path / "r.tsv").write_text(
        "subject\tstart\tstop\ttext\nw\t0\t1\tus\nv\t9\t10\tme\nv\t2\t4\twe\n", encoding="utf-8"
    )
    rows = run.read_segments(tmp_path / "r.tsv", tmp_path / "e.csv", silent=False)
    assert [(segment.text, segment.codes) for segment in rows] == [
        ("us", ("d",)), ("me", ("c9",)), ("we", ("c2", "c3")),
    ]  # fmt: skip
    (tmp_path / "t.tsv").write_text("subject\tstart\tstop\ttext\nv\t2\t4\twe\nv\t50\t60\tus\n", encoding="utf-8")
    run.read_segments(tmp_path / "t.tsv", tmp_path / "e.csv")
    assert "without events: 1 of 2" in capsys.readouterr().err
    (tmp_path / "t.tsv").write_text("subject\tstart\tstop\ttext\nother\t2\t4\twe\n", encoding="utf-8")
    with pytest.raises(BertsmithError, match=r"events in .* within the segments of .*; found none; give both the same"):
        run.read_segments(tmp_path / "t.tsv", tmp_path / "e.csv")


def test_questions_that_a_model_cannot_answer_are_refused(
    trained: tuple[Path, dict[str, float]], files: dict[str, Path]
) -> None:
    out, _ = trained
    for answer, message in (
        (lambda: bertsmith.fill_codes(out, TEXT, codes="9.9"), "codes of the model in the codes; found '9.9'"),
        (lambda: bertsmith.fill_codes(out, "no gap", codes="0.0"), r"expected \[MASK\] in the text"),
        (lambda: bertsmith.fill_codes(out, TEXT), "codes or `segments`"),
        (lambda: bertsmith.fill_codes(out, f"{TEXT} " * 9, codes="0.0"), "at most 60 pieces"),
        (lambda: bertsmith.fill_codes(out, TEXT, codes="0.0", encoding="cp1252"), "`encoding` needs `segments`"),
        (
            lambda: bertsmith.match_codes(out, files["segments"], events=files["events"], text=" "),
            "a text; found an em",
        ),
        (lambda: bertsmith.next_codes(out, " "), "a code in the codes; found none"),
        (lambda: bertsmith.next_codes(files["init"], "0.0"), "a model of texts with codes"),
        (lambda: bertsmith.train_video(**{**files, "init": out}, out=out.parent / "x", **FEW), "a model without codes"),
    ):
        with pytest.raises(BertsmithError, match=message):
            answer()
