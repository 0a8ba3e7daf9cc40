"""What goes around the training of vectors: prompts, hard negatives, teachers, few labels, evaluation."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import v_measure_score

import bertsmith
from bertsmith.app.library.finetuning import read_examples
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, InputError, RunError
from bertsmith.base.storage.files import read_json
from bertsmith.inference.search.rankings import Ranking, nearest_vectors
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.recipes.finetuning.baselines import LINES_FILE, WEIGHTS_FILE
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.sentence_encoders import few_labels
from bertsmith.recipes.sentence_encoders.evaluation import clustering_v_measure
from bertsmith.recipes.sentence_encoders.few_labels import contrastive_pairs
from bertsmith.recipes.sentence_encoders.hard_negatives import RELATIVE_MARGIN, with_hard_negatives
from bertsmith.recipes.sentence_encoders.teacher import taught
from bertsmith.tasks.datasets.examples import ListExample, TextExample, TripletExample
from bertsmith.tasks.task_data.task_files import read_task
from tasks.task_samples import BAD, GOOD, PEOPLE, PLACES, examples_of, write_base_model
from written_files import file_with

FAST = {"seeds": 1, "epochs": 1, "precision": "fp32", "baselines": False}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("base") / "model")


def lines_file(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)) + "\n", encoding="utf-8")
    return path


def partner_file(folder: Path) -> Path:
    records = [{"anchor": f"{a} {b}", "positive": f"the {b} {a} film"} for a in PEOPLE for b in PLACES]
    return lines_file(folder / "pairs.jsonl", *records)


def test_prompts_and_pooling_are_written_and_used_and_equal_in_sentence_transformers(base: str, tmp_path: Path) -> None:
    file = partner_file(tmp_path)
    bertsmith.finetune(
        base, "pairs", tmp_path / "run", train=file, dev=file, query_prompt="who ? ", passage_prompt="it was ",
        widths="16,8", max_length=24, **FAST,
    )  # fmt: skip
    folder, text = tmp_path / "run" / "model", ["anna rome", "the film " * 8, ""]
    embedder = load_embedder(folder)
    assert embedder.max_length == 24
    assert embedder.prompt == ""
    queries, passages = embedder.for_queries().embed(text), embedder.for_passages().embed(text)
    model = bertsmith.load(folder)
    np.testing.assert_array_equal(model.embed(["who ? anna rome"])[0], queries[0])
    np.testing.assert_array_equal(model.embed(text, prompt="document"), passages)
    result = bertsmith.evaluate(folder, file).scores
    assert result.keys() == {f"{name}{width}" for name in ("recall@1", "mrr@10") for width in ("", "@16", "@8")}
    report = json.loads((tmp_path / "run" / "report.json").read_text())["runs"][0]["scores"]
    assert result == pytest.approx(report, abs=1e-6)
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    assert theirs.prompts == {"query": "who ? ", "document": "it was "}
    np.testing.assert_allclose(queries, theirs.encode_query(text), atol=1e-5)
    np.testing.assert_allclose(passages, theirs.encode_document(text), atol=1e-5)


@pytest.mark.parametrize(
    "said",
    [
        ["query: "],
        3,
        "query: ",
        None,
        {"prompts": ["query: "]},
        {"prompts": []},
        {"prompts": 0},
        {"prompts": False},
        {"prompts": ""},
        {"prompts": {"query": 3}},
        {"prompts": {"query": None}},
        {"prompts": {"q": "a"}, "default_prompt_name": "b"},
        {"prompts": {"q": "a"}, "default_prompt_name": ["q"]},
    ],
)
def test_malformed_prompts_are_refused_in_one_line_and_nothing_is_lost(said: object, base: str, tmp_path: Path) -> None:
    bertsmith.make_static_vectors(base, tmp_path / "static")
    file = file_with(tmp_path / "static" / "config_sentence_transformers.json", json.dumps(said))
    before = {path.name: path.read_bytes() for path in (tmp_path / "static").iterdir()}
    pairs = partner_file(tmp_path)
    for use in (
        lambda: bertsmith.load(tmp_path / "static"),
        lambda: bertsmith.finetune(base, "pairs", tmp_path / "run", train=pairs, teacher=tmp_path / "static", **FAST),
    ):
        with pytest.raises((CheckpointError, InputError), match=re.escape(f"'{file}'")):
            use()
    assert {path.name: path.read_bytes() for path in (tmp_path / "static").iterdir()} == before
    assert not (tmp_path / "run").exists()


def test_no_prompts_are_none(base: str, tmp_path: Path) -> None:
    bertsmith.make_static_vectors(base, tmp_path / "static")
    for said in ({}, {"prompts": None}, {"prompts": {}}):
        (tmp_path / "static" / "config_sentence_transformers.json").write_text(json.dumps(said), encoding="utf-8")
        assert load_embedder(tmp_path / "static").prompts == {}


def test_fewer_dimensions_are_the_first_numbers(base: str) -> None:
    text = ["the good film", "rome"]
    narrow = load_embedder(base, dimensions=8, normalize=True).embed(text)
    whole = load_embedder(base).embed(text)[:, :8]
    np.testing.assert_allclose(narrow, whole / np.linalg.norm(whole, axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(ConfigError, match="dimensions from 1 to 32"):
        load_embedder(base, dimensions=33)


def test_hard_negatives_are_near_and_no_partners(base: str) -> None:
    pairs = examples_of("vectors of partners", 12)
    embedder = load_embedder(base)
    result = with_hard_negatives(pairs, embedder, 2)
    partners = {(pair.first, pair.second) for pair in pairs if isinstance(pair, TextExample)}
    assert sum(isinstance(example, TripletExample) for example in result) > 6
    for example in result:
        if isinstance(example, TripletExample):
            vectors = embedder.embed(example.texts)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            cosines = vectors[1:] @ vectors[0]
            assert (cosines[1:] <= cosines[0] - RELATIVE_MARGIN * abs(cosines[0]) + 1e-5).all()
            assert all((example.texts[0], text) not in partners for text in example.texts[2:])


def test_the_held_out_tenth_of_labelled_pairs_has_every_label(tmp_path: Path) -> None:
    labels = ["entailment"] * 4 + ["contradiction"] * 56
    lines = [{"text1": f"a {n}", "text2": f"b {n}", "label": label} for n, label in enumerate(labels)]
    _, data = read_task("pairs", lines_file(tmp_path / "pairs.jsonl", *lines), None)
    assert Counter(example.label for example in data.dev) == {"entailment": 1, "contradiction": 6}


@given(
    cosines=st.lists(st.integers(-9, 9), min_size=8, max_size=8, unique=True),
    count=st.integers(1, 3),
    first=st.integers(0, 2),
    more=st.integers(0, 3),
    margin=st.sampled_from([0.0, 0.05, 0.5]),
    partners=st.sets(st.integers(0, 5), min_size=1, max_size=3),
)
def test_ranks_and_margins_leave_out_what_a_plain_search_leaves_out(
    cosines: list[int], count: int, first: int, more: int, margin: float, partners: set[int]
) -> None:
    last = first + count + more
    names = [f"text {number}" for number in range(8)]
    of = dict(zip(names, (cosine / 10 for cosine in cosines), strict=True))
    pairs = [TextExample(id=str(number), first="query", second=names[number]) for number in sorted(partners)]
    least = min(of[names[number]] for number in partners)
    allowed = [
        name
        for name in sorted(names, key=lambda name: -of[name])[: last + len(partners)]
        if names.index(name) not in partners and of[name] <= least - margin * abs(least)
    ]
    options: dict[str, Any] = {"ranks": (first, last), "margin": margin, "texts": names}
    mined = with_hard_negatives(pairs, OfCosines(of), count, **options)  # type: ignore[arg-type]
    expected = tuple(allowed[:last][first:][:count])
    for example, pair in zip(mined, pairs, strict=True):
        assert (example.texts[2:] if isinstance(example, TripletExample) else ()) == expected
        assert example.texts[:2] == pair.texts  # type: ignore[union-attr]
    endings = tuple(pair.second or "" for pair in pairs)
    example = ListExample(id="0", context="query", endings=endings, scores=(1.0,) * len(pairs))
    listed = with_hard_negatives([example], OfCosines(of), count, **options)[0]  # type: ignore[arg-type]
    assert isinstance(listed, ListExample)
    assert listed.endings == (*example.endings, *expected)
    assert listed.scores == (*example.scores, *[0.0] * len(expected))


def test_partners_of_one_text_take_no_rank_of_others() -> None:
    names = [f"text {number}" for number in range(8)]
    of = {name: 0.9 - number / 10 for number, name in enumerate(names)}
    pairs = [TextExample(id=name, first="many", second=name) for name in names[:5]]
    pairs.append(TextExample(id="6", first="single", second=names[6]))
    mined = with_hard_negatives(pairs, OfCosines(of), 1, ranks=(0, 1), margin=0.0)  # type: ignore[arg-type]
    assert mined[:5] == [
        TripletExample(id=pair.id, texts=("many", pair.second or "", names[6]), location=pair.location)
        for pair in pairs[:5]
    ]
    assert mined[5] == pairs[5], "its nearest texts are nearer than its partner, and the next ones are not asked for"


def test_candidates_that_are_known_to_be_wrong_take_no_rank_of_others() -> None:
    names = [f"text {number}" for number in range(6)]
    of = {name: 0.9 - number / 10 for number, name in enumerate(names)}
    example = ListExample(id="0", context="query", endings=(*names[:4],), scores=(1.0, 0.0, 0.0, 0.0))
    mined = with_hard_negatives([example], OfCosines(of), 1, ranks=(0, 1), texts=names)[0]  # type: ignore[arg-type]
    assert isinstance(mined, ListExample)
    assert mined.endings == (*names[:5],)


class OfCosines:
    """An embedder whose texts have given cosines with every query."""

    def __init__(self, cosines: Mapping[str, float]) -> None:
        self.cosines = cosines

    def for_queries(self) -> "OfCosines":
        return OfCosines({})

    def for_passages(self) -> "OfCosines":
        return self

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        values = [self.cosines.get(text, 1.0) for text in texts]
        return np.array([[value, np.sqrt(1 - value**2)] for value in values], dtype=np.float32)


class OfTexts(NamedTuple):
    """An index of texts that have given cosines with every query."""

    texts: Sequence[str]
    embedder: OfCosines

    def search(self, queries: np.ndarray, top: int) -> Ranking:
        return nearest_vectors(queries, self.embedder.embed(self.texts), top)


@pytest.mark.parametrize("ranks", [(0, 3), (2, 5)])
def test_a_text_that_is_in_an_index_again_takes_one_rank(ranks: tuple[int, int]) -> None:
    names = [f"text {number}" for number in range(8)]
    embedder: Any = OfCosines({name: 0.9 - number / 10 for number, name in enumerate(names)})
    pairs = [TextExample(id=str(n), first=f"query {n}", second=names[n]) for n in (0, 3)]
    options: dict[str, Any] = {"ranks": ranks, "margin": 0.0}
    index: Any = OfTexts([*names, names[1]], embedder)
    mined = with_hard_negatives(pairs, embedder, 3, index=index, **options)
    assert mined == with_hard_negatives(pairs, embedder, 3, texts=names, **options)
    assert mined[0].texts[2:] == tuple(names[1:][ranks[0] : ranks[1]])  # type: ignore[union-attr]


def test_hard_negatives_need_pairs_without_labels(base: str) -> None:
    with pytest.raises(ConfigError, match="pairs without labels"):
        with_hard_negatives(examples_of("scored vectors", 4), load_embedder(base), 1)


def test_a_teacher_scores_pairs_and_the_margins_of_triplets(base: str, tmp_path: Path) -> None:
    train = lines_file(
        tmp_path / "scored.jsonl",
        *({"text1": a, "text2": b, "score": float(a == b)} for a in GOOD + BAD for b in GOOD + BAD),
    )
    bertsmith.finetune(base, "regression", tmp_path / "teacher", train=train, dev=train, reads="mean", **FAST)
    teacher = bertsmith.load(tmp_path / "teacher")
    name, pairs = taught(tmp_path / "teacher", "pairs", [TextExample(id="1", first="good", second="bad")])
    assert name == "similarity"
    assert pairs[0].label == pytest.approx(teacher.score([("good", "bad")])[0].value, abs=1e-5)
    triplet = TripletExample(id="1", texts=("good", "fine", "bad"))
    _, triplets = taught(tmp_path / "teacher", "triplets", [triplet])
    near, far = teacher.score([("good", "fine"), ("good", "bad")])
    assert triplets[0].margin == pytest.approx(near.value - far.value, abs=1e-5)
    with pytest.raises(ConfigError, match="for a teacher"):
        taught(tmp_path / "teacher", "texts", [])
    result = bertsmith.finetune(
        base, "pairs", tmp_path / "run", train=partner_file(tmp_path), teacher=tmp_path / "teacher", **FAST
    )
    assert (result.spec.name, result.spec.objective) == ("similarity", "cosine")
    assert read_json(tmp_path / "run" / "settings.json")["settings"]["teacher"] == str(tmp_path / "teacher")


def test_a_sentence_encoder_teaches_its_cosines(base: str, tmp_path: Path) -> None:
    teacher, file = tmp_path / "teacher", partner_file(tmp_path)
    options = {"train": file, "dev": file, **FAST}
    bertsmith.finetune(base, "pairs", teacher, query_prompt="who ? ", passage_prompt="it was ", **options)
    embedder = load_embedder(teacher / "model")

    def cosine(first: str, second: str) -> float:
        query_vector, other = embedder.for_queries().embed([first])[0], embedder.for_passages().embed([second])[0]
        return float(query_vector @ other / np.linalg.norm(query_vector) / np.linalg.norm(other))

    example = TextExample(id="1", first="good", second="bad")
    for source in (teacher, teacher / "model"):
        name, pairs = taught(source, "pairs", [example] * 3)
        assert name == "similarity"
        assert [pair.label for pair in pairs] == pytest.approx([cosine("good", "bad")] * 3, abs=1e-5)
    _, triplets = taught(teacher, "triplets", [TripletExample(id="1", texts=("good", "fine", "bad", "rome"))])
    assert triplets[0].margin == pytest.approx(cosine("good", "fine") - cosine("good", "bad"), abs=1e-5)
    result = bertsmith.finetune(base, "pairs", tmp_path / "run", teacher=teacher, **options)
    assert (result.spec.name, result.spec.objective) == ("similarity", "cosine")


def test_the_encoder_of_another_tool_teaches_and_a_model_without_a_recipe_does_not(base: str, tmp_path: Path) -> None:
    bertsmith.make_static_vectors(base, tmp_path / "static")
    example = TextExample(id="1", first="the good film", second="a bad film")
    (tmp_path / "static" / "bertsmith.json").unlink()
    first, second = load_embedder(tmp_path / "static").embed([example.first, example.second or ""])
    _, (pair,) = taught(tmp_path / "static", "pairs", [example])
    wanted = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert pair.label == pytest.approx(float(wanted), abs=1e-5)
    with pytest.raises(CheckpointError, match="without a task head"):
        taught(base, "pairs", [example])
    labelled = lines_file(tmp_path / "labelled.jsonl", *({"text": f"a {w}", "label": w} for w in (*GOOD, *BAD)))
    bertsmith.finetune(base, "classification", tmp_path / "single", train=labelled, dev=labelled, **FAST)
    with pytest.raises(ConfigError, match="a teacher that compares two texts: a sentence encoder, or"):
        taught(tmp_path / "single", "pairs", [example])


def test_a_cosine_of_the_teacher_is_learned_by_a_narrower_student(base: str, tmp_path: Path) -> None:
    bertsmith.make_static_vectors(base, tmp_path / "teacher")
    bertsmith.make_static_vectors(base, tmp_path / "student", dimensions=8)
    texts = [f"{a} {b}" for a in (*GOOD, *BAD) for b in PLACES]
    both = list(zip(texts, texts[3:] + texts[:3], strict=True))
    pairs = [TextExample(id=str(n), first=vectors, second=other) for n, (vectors, other) in enumerate(both)]

    def cosines(name: str) -> npt.NDArray[np.float64]:
        return np.array([example.label for example in taught(tmp_path / name, "pairs", pairs)[1]])

    gold = cosines("teacher")
    dev = ({"text1": a, "text2": b, "score": float(score)} for (a, b), score in zip(both, gold, strict=True))
    bertsmith.finetune(
        str(tmp_path / "student"), "pairs", tmp_path / "run", teacher=tmp_path / "teacher",
        train=lines_file(tmp_path / "pairs.jsonl", *({"anchor": a, "positive": b} for a, b in both)),
        dev=lines_file(tmp_path / "scored.jsonl", *dev), **{**FAST, "epochs": 40, "learning_rate": 1e-2},
    )  # fmt: skip
    before, after = (np.corrcoef(cosines(name), gold)[0, 1] for name in ("student", "run"))
    assert after > 0.9 > before


def test_negatives_of_an_index_are_those_of_its_texts(base: str, tmp_path: Path) -> None:
    train, texts = partner_file(tmp_path), ["bad plot", "anna was good", "the rome anna film"]
    lines = file_with(tmp_path / "texts.txt", "".join(f"{text}\n" for text in texts))
    bertsmith.build_index(lines, tmp_path / "index", model=base)
    options: dict[str, Any] = {"train": train, "hard_negatives": 8, "negative_margin": 0.0, "negative_ranks": "0,60"}

    def mined(source: Path, **more: Any) -> list[Any]:
        request = FinetuneRequest(base, "pairs", tmp_path / "run", negatives_from=source, **options, **more)
        return list(read_examples(request).data.train)

    of_index = mined(tmp_path / "index")
    assert of_index == mined(lines)
    assert {text for example in of_index for text in example.texts[2:]} & set(texts[:2])
    other = write_base_model(tmp_path / "other", 4)
    with pytest.raises(InputError, match=r"the model of the vectors in '.*index'; found another \(model\)"):
        mined(tmp_path / "index", miner=other)


def test_hard_negatives_are_recorded_and_a_resumed_run_has_as_many(base: str, tmp_path: Path) -> None:
    options = {"train": partner_file(tmp_path), **FAST}
    bertsmith.finetune(base, "pairs", tmp_path / "run", hard_negatives=1, **options)
    settings = read_json(tmp_path / "run" / "settings.json")["settings"]
    assert settings["hard_negatives"] == 1
    assert "teacher" not in settings
    with pytest.raises(RunError, match=r"hard_negatives = 2 \(was 1\)"):
        bertsmith.finetune(base, "pairs", tmp_path / "run", hard_negatives=2, resume=True, **options)


def test_contrastive_pairs_have_both_kinds_and_depend_on_the_seed_alone() -> None:
    examples = [TextExample(id=str(n), first=f"text {n}", label="ab"[n % 2]) for n in range(8)]
    pairs = contrastive_pairs(examples, 1, per_text=3)
    label = {example.first: example.label for example in examples}
    assert len(pairs) == 8 * 6
    assert all((label[pair.first] == label[pair.second]) == (pair.label == 1.0) for pair in pairs)
    assert all(pair.first != pair.second for pair in pairs)
    assert pairs == contrastive_pairs(examples, 1, per_text=3)
    assert pairs != contrastive_pairs(examples, 2, per_text=3)


def test_few_labels_train_vectors_and_then_a_layer_and_resume_to_the_same_bytes(base: str, tmp_path: Path) -> None:
    records = [{"text": f"the {word} film", "label": name} for name, part in (("+", GOOD), ("-", BAD)) for word in part]
    train = lines_file(tmp_path / "few.jsonl", *records)
    options = {"train": train, "dev": train, "recipe": "setfit", "seeds": 1, "precision": "fp32", "baselines": False}
    result = bertsmith.finetune(base, "classification", tmp_path / "run", **options)
    assert result.runs[0].scores["accuracy"] > 0.7
    layer = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    vectors = tmp_path / "run" / "continued" / "pairs" / "model" / "model.safetensors"
    assert vectors.read_bytes() != (Path(base) / "model.safetensors").read_bytes()
    (tmp_path / "run" / "report.json").unlink()
    bertsmith.finetune(base, "classification", tmp_path / "run", resume=True, **options)
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == layer


def test_baselines_of_few_labels_read_vectors_that_have_not_seen_the_labels(base: str, tmp_path: Path) -> None:
    records = [{"text": f"the {word} film", "label": name} for name, part in (("+", GOOD), ("-", BAD)) for word in part]
    train = lines_file(tmp_path / "few.jsonl", *records)
    for recipe in ("auto", "setfit"):
        options = {"train": train, "dev": train, "recipe": recipe, "seeds": 1, "precision": "fp32", "device": "cpu"}
        bertsmith.finetune(base, "classification", tmp_path / recipe, **options)
    for name in (LINES_FILE, WEIGHTS_FILE):
        assert (tmp_path / "auto" / name).read_bytes() == (tmp_path / "setfit" / name).read_bytes()


def test_one_class_only_is_refused_for_few_labels() -> None:
    with pytest.raises(ConfigError, match="setfit needs texts of several labels"):
        contrastive_pairs([TextExample(id="1", first="a", label="x"), TextExample(id="2", first="b", label="x")], 1)


def test_labels_with_one_text_each_are_refused_for_few_labels() -> None:
    examples = [TextExample(id=str(n), first=f"text {n % 2}", label="ab"[n % 2]) for n in range(4)]
    with pytest.raises(ConfigError, match="a label with two different texts for the recipe setfit"):
        contrastive_pairs(examples, 1)
    assert contrastive_pairs([*examples, TextExample(id="4", first="other", label="a")], 1)


def test_labels_with_one_text_each_are_not_learned_from_pairs_by_default(base: str, tmp_path: Path) -> None:
    encoder = write_sentence_encoder(base, tmp_path / "encoder", "mean")
    train = lines_file(tmp_path / "one.jsonl", *({"text": f"the {word} film", "label": word} for word in GOOD[:3]))
    options = {"train": train, "seeds": 1, "precision": "fp32", "device": "cpu"}
    bertsmith.finetune(encoder, "classification", tmp_path / "run", **options)
    assert not (tmp_path / "run" / "continued").exists()
    with pytest.raises(ConfigError, match=r'two different texts.*use `recipe="auto"`'):
        bertsmith.finetune(encoder, "classification", tmp_path / "asked", recipe="setfit", **options)


def test_the_recipe_for_few_labels_refuses_other_tasks(base: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="single texts with one label each"):
        bertsmith.finetune(base, "pairs", tmp_path / "run", train=partner_file(tmp_path), recipe="setfit")
    assert not (tmp_path / "run").exists()


def test_few_labels_are_checked_before_the_vectors_are_trained(base: str, tmp_path: Path) -> None:
    records = [{"text": f"the {word} film", "label": name} for name, part in (("+", GOOD), ("-", BAD)) for word in part]
    train = lines_file(tmp_path / "few.jsonl", *records)
    other = lines_file(tmp_path / "other.jsonl", {"text": "a film", "label": "neither"})
    options = {"train": train, "recipe": "setfit", "seeds": 1, "precision": "fp32", "baselines": False}
    for changes, message in (
        ({"dev": other}, "a known label"),
        ({"continue_minutes": 1.0}, "setfit by itself; found `continue_minutes`"),
        ({"vector_loss": "cosent"}, "for `vectors`, `vector_loss`"),
        ({"resume": True}, "a run in"),
    ):
        with pytest.raises(BertsmithError, match=message):
            bertsmith.finetune(base, "classification", tmp_path / "run", **{"dev": train, **options, **changes})
        assert not (tmp_path / "run").exists()


def test_few_labels_for_a_sentence_encoder_are_learned_from_pairs_unless_a_setting_is_given(
    base: str, tmp_path: Path
) -> None:
    words = [(a, b) for b in (*PEOPLE, *PLACES) for a in (*GOOD, *BAD)]
    few = [{"text": f"the {a} film of {b}", "label": "+" if a in GOOD else "-"} for a, b in words]
    files = {
        "few": lines_file(tmp_path / "few.jsonl", *few[:40]),
        "many": lines_file(tmp_path / "many.jsonl", *few, *[few[0]] * (few_labels.FEW * 2)),
    }
    encoder = write_sentence_encoder(base, tmp_path / "encoder", "mean")
    fast = {"seeds": 1, "precision": "fp32", "baselines": False}
    for name, (model, file, changes) in {
        "default": (encoder, "few", {}),
        "asked": (encoder, "few", {"recipe": "setfit"}),
        "no sentence encoder": (base, "few", {}),
        "of first tokens": (write_sentence_encoder(base, tmp_path / "cls", "cls"), "few", {}),
        "many": (encoder, "many", {}),
        "automatic": (encoder, "few", {"recipe": "auto", "epochs": 1}),
        "settings": (encoder, "few", {"start": "linear", "epochs": 1}),
        "saved often": (encoder, "few", {"save_minutes": 1.0}),
        "compared": (encoder, "few", {"keep": "auto"}),
    }.items():
        bertsmith.finetune(model, "classification", tmp_path / name, train=files[file], **fast, **changes)
        in_pairs = (tmp_path / name / "continued" / "pairs").exists()
        assert in_pairs == (name in ("default", "asked", "saved often", "compared")), name
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("default", "asked")]
    assert weights[0] == weights[1]
    (tmp_path / "default" / "report.json").unlink()
    (tmp_path / "killed" / "continued").mkdir(parents=True)  # before there were settings
    for name in ("default", "killed"):
        bertsmith.finetune(encoder, "classification", tmp_path / name, train=files["few"], resume=True, **fast)
        assert (tmp_path / name / "model" / "model.safetensors").read_bytes() == weights[0], name


def write_sentence_encoder(base: str, folder: Path, pooling: str) -> str:
    """The base model as the folder of a sentence encoder from another tool."""
    shutil.copytree(base, folder)
    (folder / "bertsmith.json").unlink()
    types = "sentence_transformers.models."
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{types}Transformer"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{types}Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    return str(folder)


def test_an_interrupted_training_on_pairs_is_resumed_with_its_recipe(base: str, tmp_path: Path) -> None:
    records = [{"text": f"the {word} film", "label": name} for name, part in (("+", GOOD), ("-", BAD)) for word in part]
    train = lines_file(tmp_path / "few.jsonl", *records)
    options = {"train": train, "dev": train, "seeds": 1, "precision": "fp32", "baselines": False}
    bertsmith.finetune(base, "classification", tmp_path / "run", recipe="setfit", **options)
    shutil.copytree(tmp_path / "run" / "continued", tmp_path / "again" / "continued")
    bertsmith.finetune(base, "classification", tmp_path / "again", resume=True, **options)
    model = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "again")]
    assert model[0] == model[1]


def test_any_model_is_scored_on_pairs_triplets_and_clusters(base: str, tmp_path: Path) -> None:
    labelled = lines_file(
        tmp_path / "labelled.jsonl",
        *({"text1": a, "text2": f"{b} {b}", "label": str(int(a == b))} for a in GOOD for b in GOOD + BAD),
    )
    assert bertsmith.evaluate(base, labelled, task="pairs").scores["average_precision"] > 0.8
    triplets = lines_file(
        tmp_path / "triplets.jsonl", {"anchor": "good", "positive": "good film", "negative": "who where ?"}
    )
    result = bertsmith.evaluate(base, triplets, task="triplets")
    assert result.scores["triplet_accuracy"] in (0.0, 1.0)
    clusters = lines_file(
        tmp_path / "clusters.jsonl", *({"text": f"{word} {word}", "label": word} for word in GOOD for _ in range(4))
    )
    assert bertsmith.evaluate(base, clusters, task="clustering").scores["v_measure"] == pytest.approx(1.0)
    alone = lines_file(tmp_path / "alone.jsonl", {"text": "a", "label": "x"}, {"text": "b", "label": "x"})
    with pytest.raises(InputError, match="different labels"):
        bertsmith.evaluate(base, alone, task="clustering")


def test_clusters_that_are_the_labels_have_a_v_measure_of_one() -> None:
    draw = np.random.default_rng(0)
    centers = 10 * draw.normal(size=(3, 8))
    vectors = np.concatenate([centers + 0.1 * draw.normal(size=(3, 8)) for _ in range(20)])
    labels = ["a", "b", "c"] * 20
    assert clustering_v_measure(vectors, labels) == pytest.approx(1.0)
    assert clustering_v_measure(vectors, draw.permutation(labels)) < 0.3


def test_clusters_are_scored_as_by_mteb() -> None:
    """With the settings and the calls of its `ClusteringEvaluator`, which needs data sets of its own."""
    vectors, labels = np.random.default_rng(1).normal(size=(200, 8)), np.arange(200) % 7
    model = MiniBatchKMeans(n_clusters=7, batch_size=500, n_init="auto", compute_labels=True, random_state=42)
    expected = v_measure_score(labels, model.fit(vectors).labels_)
    assert clustering_v_measure(vectors, labels) == pytest.approx(expected)
