"""One model in five scripts: from text to a vocabulary, a corpus, a pre-trained and a fine-tuned model, served."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

import bertsmith
from bertsmith import Model
from bertsmith.app.library.finetuning import finetune
from bertsmith.app.library.training import pretrain
from bertsmith.app.library.vocabulary import learn_vocabulary
from bertsmith.base.storage.files import read_json
from bertsmith.text.corpus.build import build_corpus


class Language(NamedTuple):
    """Subjects, and what may be said of them, good or bad; `join` is between words."""

    subjects: str
    good: str
    bad: str
    join: str
    stop: str

    def sentence(self, rng: random.Random, label: str) -> str:
        words = [rng.choice(self.subjects.split()), rng.choice((self.good if label == "good" else self.bad).split())]
        return self.join.join(words) + self.stop


LANGUAGES = {
    "ar": Language("الفندق الطعام الكتاب", "جميل رائع ممتاز", "سيئ قذر ممل", " ", "؟"),
    "en": Language("hotel food book", "wonderful great fine", "dirty awful dull", " ", "."),
    "ru": Language("Отель Книга Ужин", "прекрасно чудесно отлично", "ужасно скучно грязно", " ", "."),
    "th": Language("โรงแรม อาหาร หนังสือ", "สวยงามมาก ยอดเยี่ยม ดีมาก", "แย่มาก สกปรก น่าเบื่อ", "", " "),
    "zh": Language("酒店 食物 这本书", "很好 漂亮 精彩", "很差 肮脏 无聊", "", "。"),
}


def examples(name: str, count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(f"{name} {seed}")
    return [(LANGUAGES[name].sentence(rng, label), label) for label in ("good", "bad") * count]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, a pre-trained model and one that was fine-tuned on all languages."""
    folder = tmp_path_factory.mktemp("languages")
    for number, name in enumerate(LANGUAGES):
        texts = [text for text, _ in examples(name, 20 + 20 * number, 1)]
        documents = ["\n".join(texts[first : first + 4]) for first in range(0, len(texts), 4)]
        (folder / "text" / name).mkdir(parents=True)
        (folder / "text" / name / "all.txt").write_text("\n\n".join(documents), encoding="utf-8")
    learned = learn_vocabulary([folder / "text"], 420, cased=True, rules="unspaced", languages=True)
    learned.tokenizer.vocabulary.save(folder / "vocab.txt")
    build_corpus(
        [folder / "text"],
        learned.tokenizer,
        folder / "corpus",
        form="lines",
        languages=True,
        workers=1,
    )
    small = {"device": "cpu", "precision": "fp32"}
    pretrain(
        folder / "corpus",
        folder / "run",
        size="tiny",
        steps=3,
        rows_per_step=4,
        max_length=32,
        whole_word=True,
        **small,
    )
    rows = [f"{text}\t{label}" for name in LANGUAGES for text, label in examples(name, 8, 2)]
    (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    finetune(
        folder / "run" / "model",
        "classification",
        folder / "tuned",
        train=folder / "train.tsv",
        seeds=1,
        epochs=4,
        max_length=32,
        baselines=False,
        **small,
    )
    return folder


@pytest.fixture(scope="module")
def base(folder: Path) -> Model:
    return bertsmith.load(folder / "run", device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Model:
    return bertsmith.load(folder / "tuned", device="cpu", precision="fp32")


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_vocabulary_covers_the_script(base: Model, name: str) -> None:
    texts = [text for text, _ in examples(name, 8, 3)]
    pieces = [piece for row in base.pieces(texts) for piece in row]
    assert "[UNK]" not in pieces
    characters = sum(not character.isspace() for text in texts for character in text)
    assert len(pieces) == characters if name == "zh" else len(pieces) < 0.6 * characters


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_mask_in_the_script_is_filled(base: Model, name: str) -> None:
    (filled,) = base.fill([f"{LANGUAGES[name].subjects.split()[0]} [MASK]{LANGUAGES[name].stop}"], top=3)
    assert [len(candidates) for candidates in filled] == [3]


@pytest.mark.parametrize("name", LANGUAGES)
def test_labels_are_predicted_in_the_script(tuned: Model, name: str) -> None:
    asked = examples(name, 6, 4)
    result = tuned.classify([text for text, _ in asked])
    correct = sum(prediction.label == label for prediction, (_, label) in zip(result, asked, strict=True))
    assert correct >= 9, f"{correct} of 12"


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_served_answers_are_those_of_the_library(base: Model, tuned: Model, name: str) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from server.asgi import replies_to

    texts = [text for text, _ in examples(name, 2, 5)]
    masked = [f"{text} [MASK]" for text in texts]
    requests = (
        ("/predict", {"model": "mood", "texts": texts}),
        ("/fill", {"model": "base", "texts": masked, "top": 2}),
    )
    replies = replies_to({"mood": tuned, "base": base}, *requests)
    assert [reply.status for reply in replies] == [200, 200], replies
    predicted, filled = (reply.json["predictions"] for reply in replies)
    assert [prediction["label"] for prediction in predicted] == [
        prediction.label for prediction in tuned.classify(texts)
    ]
    assert [[piece["piece"] for piece in reply["masks"][0]] for reply in filled] == [
        [piece.piece for piece in gap[0]] for gap in base.fill(masked, top=2)
    ]


def test_the_package_tokenizers_reads_the_same_ids_from_the_folder(folder: Path, base: Model) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_file(str(folder / "run" / "model" / "tokenizer.json"))
    for name in LANGUAGES:
        for text, _ in examples(name, 4, 6):
            ours = base.tokenizer.encode(text).tolist()
            assert theirs.encode(text, add_special_tokens=False).ids == ours, text


def test_the_card_names_the_languages_and_their_shares(folder: Path) -> None:
    card = (folder / "run" / "model" / "README.md").read_text(encoding="utf-8")
    record = read_json(folder / "corpus" / "corpus.json")["languages"]
    assert record["exponent"] == 0.7
    assert "\nlanguage:\n- ar\n- en\n- ru\n- th\n- zh\ntags:" in card
    shares = ", ".join(f"{name} {100 * language['share']:.1f} %" for name, language in record["by_name"].items())
    assert f"- languages: {shares}\n" in card
    smallest, largest = (record["by_name"][name] for name in ("ar", "zh"))
    assert smallest["share"] > smallest["share_of_text"]
    assert largest["share"] < largest["share_of_text"]
