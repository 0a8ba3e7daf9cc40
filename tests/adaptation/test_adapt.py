"""Adaptations from text to report: what they leave, how they resume, what they refuse."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptation.domain_samples import (
    DOMAIN,
    kill_and_resume,
    weights,
    words,
    write_base,
    write_domain,
    write_general,
    write_labelled,
)
from bertsmith import adapt, load
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError, VocabularyError
from bertsmith.base.core.progress import amount
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.sentence_transformers import write_recipe
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.adaptation import continued, domain_text, further_pretraining, preparation, run
from bertsmith.recipes.adaptation import forecast as forecasts
from bertsmith.recipes.adaptation.forecast import LEAST_WORDS
from bertsmith.recipes.adaptation.preparation import way_for
from bertsmith.recipes.adaptation.run import forecast_adaptation
from bertsmith.recipes.adaptation.settings import ENOUGH_WORDS, FEW_TOKENS
from bertsmith.recipes.sentence_encoders.static import make_static_vectors
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.tokenizers.added_tokens import AddedToken
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from tasks.architecture_samples import write_base_model
from tasks.task_samples import CONFIG, PEOPLE, TOKENIZER

ONCE: dict[str, Any] = {"steps": 3, "max_length": 32, "held_out": 0.1, "score_words": 200, "device": "cpu"}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base")


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    return write_domain(tmp_path / "domain.txt")


@pytest.fixture
def general(tmp_path: Path) -> Path:
    return write_general(tmp_path / "general.txt")


@pytest.mark.parametrize("vocabulary", ["keep", "graft", "new"])
def test_a_model_is_adapted_and_the_change_is_reported(
    vocabulary: str, base: Path, domain: Path, general: Path, tmp_path: Path
) -> None:
    options = {**ONCE, "vocabulary": vocabulary, "licence": "apache-2.0"}
    if vocabulary == "new":
        options["pieces"] = 60
    result = adapt(base, [domain], tmp_path / "run", general=[general], **options)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    old, new = (set(load_any(folder).require_tokenizer().vocabulary.pieces) for folder in (base, result.model))
    assert report["shared_pieces"] == pytest.approx(len(old & new) / len(old), abs=1e-4)
    assert (report["shared_pieces"] < 1) == (vocabulary == "new")
    assert any("are in the new vocabulary" in line for line in result.lines()) == (vocabulary == "new")
    assert report == json.loads(json.dumps(result.report))
    pieces = report["fragmentation"]["field"]
    assert pieces["before"]["pieces_per_word"] > 1.1
    if vocabulary == "keep":
        assert pieces["after"] == pieces["before"]
    else:
        assert pieces["after"]["pieces_per_word"] < pieces["before"]["pieces_per_word"]
    for text in ("field", "general"):
        before, after = report["losses"][text]["before"], report["losses"][text]["after"]
        assert before["words"] == after["words"]
        assert before["per_word"] != after["per_word"]
        low, high = after["change"][1:]
        assert low <= after["change"][0] <= high
    folder = load_any(tmp_path / "run")
    assert folder.metadata.licence == "apache-2.0"
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert card.startswith('---\nlicense: "apache-2.0"\n')
    assert str(domain) in card
    assert str(base) in card
    assert "The licence" not in card
    assert folder.metadata.sources[0].startswith(f"`{domain}`, 2,640 words, `sha256:")
    assert load(tmp_path / "run", device="cpu").fill(["the [MASK] was ."])[0]
    assert "mlm" in folder.parts
    page = result.page.read_text()
    assert "pieces per word" in page
    assert result.table()[1][0][0] == "pieces per word"


def test_the_grafted_words_are_those_of_the_domain(base: Path, domain: Path, general: Path, tmp_path: Path) -> None:
    result = adapt(base, [domain], tmp_path / "run", general=[general], vocabulary="graft", add=50, **ONCE)
    assert sorted(result.report["added"]) == sorted(DOMAIN)
    assert any("only 2 are frequent enough to be added" in line for line in result.report["advice"])
    assert any("too few for losses that mean something" in line for line in result.report["advice"])
    model = load_any(tmp_path / "run")
    assert model.require_tokenizer().vocabulary.pieces[-2:] == tuple(result.report["added"])
    assert model.metadata.continued_from == {"task": "pretraining", "tokens": 70}
    # The words that were not split keep their vectors' length apart from the training: the start has them unchanged.
    start = load_any(tmp_path / "run" / "start").tensors["bert.embeddings.word.weight"]
    assert np.array_equal(start[: len(TOKENIZER.vocabulary)], load_any(base).tensors["bert.embeddings.word.weight"])


def test_with_a_task_the_models_are_compared_on_its_dev_examples(
    base: Path, domain: Path, general: Path, tmp_path: Path
) -> None:
    labelled = write_labelled(tmp_path / "train.csv")
    result = adapt(
        base, [domain], tmp_path / "run", general=[general], task="classification", train=labelled, dev=labelled,
        seeds=1, from_scratch=True, **ONCE,
    )  # fmt: skip
    task = result.report["task"]
    assert list(task["arms"]) == ["as-it-is", "adapted", "from-scratch"]
    assert all(0 <= arm["mean"] <= 1 for arm in task["arms"].values())
    assert len(task["comparisons"]) == 2
    assert any("new model from scratch" in row[0] for row in result.table()[1])
    scratch = load_any(tmp_path / "run" / "from-scratch" / "run")
    assert scratch.require_tokenizer().vocabulary != TOKENIZER.vocabulary
    assert scratch.config.num_hidden_layers == load_any(base).config.num_hidden_layers


@pytest.mark.parametrize("vocabulary", ["graft", "new"])
def test_a_run_that_was_killed_anywhere_ends_like_one_that_was_not(
    vocabulary: str, base: Path, domain: Path, general: Path, tmp_path: Path
) -> None:
    def start(name: str, **options: Any) -> None:
        adapt(base, [domain], tmp_path / name, general=[general], vocabulary=vocabulary, **ONCE, **options)

    start("straight")
    places = (
        (continued, "build_corpus"),
        (further_pretraining, "pretrain"),
        (run, "final_model"),
        (run, "write_report"),
    )
    for module, name in places:
        kill_and_resume(start, name, module, name)
        assert weights(tmp_path / name / "model") == weights(tmp_path / "straight" / "model"), name
        reports = [json.loads((tmp_path / run / "report.json").read_text()) for run in (name, "straight")]
        assert reports[0]["losses"] == reports[1]["losses"]
    before = weights(tmp_path / "straight" / "model")
    start("straight", resume=True)
    assert weights(tmp_path / "straight" / "model") == before
    with pytest.raises(RunError, match="settings that the run"):
        adapt(base, [domain], tmp_path / "straight", general=[general], vocabulary="keep", resume=True, **ONCE)
    domain.write_text(domain.read_text() + "it was .\n", encoding="utf-8")
    with pytest.raises(RunError, match="digest of"):
        start("straight", resume=True)


@pytest.mark.parametrize("documents", [60, 3, 1])
def test_losses_are_measured_on_the_documents_that_are_not_trained_on(documents: int, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    known = "the a film was it".split()
    path.write_text("\n\n".join(f"{words(9, n, known)} .\n{words(9, n + 99, known)} ." for n in range(documents)))
    result = domain_text.read_domain([path], TOKENIZER.rules, ReadingSettings(), held_out=0.1, most_words=10**6)
    build_corpus([path], TOKENIZER, tmp_path / "corpus", held_out=0.1)
    corpus = Corpus.open(tmp_path / "corpus")
    held_out = corpus.held_out()
    texts = [TOKENIZER.decode(held_out.document_tokens(number)) for number in range(held_out.num_documents)]
    assert [" ".join(sentences) for sentences in result.held_out] == texts
    assert result.documents == documents
    if documents == 60:
        assert result.training.total == corpus.num_tokens


def test_general_text_is_the_documentation_on_this_machine_unless_it_is_given(general: Path) -> None:
    result = domain_text.general_text((), ReadingSettings(), most_words=50)
    assert 50 <= sum(len(sentence.split()) for document in result for sentence in document) < 200
    assert "anna" not in str(result)
    passages = str(domain_text.general_text([general], ReadingSettings(), most_words=99))
    assert any(name in passages for name in PEOPLE)


def test_the_forecast_trains_nothing_and_says_how_long_it_takes(base: Path, domain: Path) -> None:
    before = weights(base)
    result = forecast_adaptation(base, [domain], minutes=2.0, max_length=32, device="cpu")
    assert result.words == 60 * 44
    assert result.passes == pytest.approx(120 / result.pass_seconds)
    assert result.tokens_per_second > 0
    assert weights(base) == before
    assert any("minutes would read the text" in line for line in result.advice()) == (result.passes > 100)
    assert f"2 minutes read it {amount(result.passes)} times" in result.lines()[2]
    assert "vocabulary: keep, the pre-training of the model continues with its own" in result.lines()
    assert result.to_dict()["passes"] == round(result.passes, 2)


def test_the_way_depends_on_what_the_model_has_read_and_on_the_text() -> None:
    assert way_for(FEW_TOKENS - 1, ENOUGH_WORDS) == "new"
    assert way_for(FEW_TOKENS, ENOUGH_WORDS) == "keep"
    assert way_for(FEW_TOKENS - 1, ENOUGH_WORDS - 1) == "keep"
    assert way_for(None, 10 * ENOUGH_WORDS) == "keep"


def test_without_a_way_a_new_model_is_trained_if_the_old_one_has_read_little(
    base: Path, domain: Path, general: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(preparation, "ENOUGH_WORDS", 2_000)
        patched.setattr(forecasts, "expected_gain", lambda arm, _: f"that of a {arm}")
        lines = forecast_adaptation(base, [domain], steps=3, max_length=32, device="cpu").lines()
        assert "gain: that of a new model" in lines
        (choice,) = [line for line in lines if line.startswith("choice: ")]
        assert "the model has read only 70 tokens" in choice
        assert "`bertsmith adapt MODEL TEXT --vocabulary keep --out RUN`" in choice
        result = adapt(base, [domain], tmp_path / "new", general=[general], **ONCE)
        assert result.report["settings"]["adaptation"]["vocabulary"] == "new"
        assert result.report["shared_pieces"] < 1
        assert result.report["forecast"]["gain"] == "that of a new model"
        assert load_any(result.model).metadata.tokens == load_any(result.model).metadata.all_tokens
    before = weights(result.model)
    # The choice is that of the start of the run, whatever would be chosen now.
    assert adapt(base, [domain], tmp_path / "new", general=[general], resume=True, **ONCE).model == result.model
    assert weights(result.model) == before
    with pytest.raises(RunError, match=r"adaptation\.vocabulary = 'keep' \(was 'new'\)"):
        adapt(base, [domain], tmp_path / "new", general=[general], resume=True, vocabulary="keep", **ONCE)


@pytest.mark.parametrize("vocabulary", ["auto", "graft"])
def test_a_model_that_has_read_little_is_reported_with_the_command_for_a_new_one(
    vocabulary: str, base: Path, domain: Path
) -> None:
    options = {"vocabulary": vocabulary, "steps": 3, "max_length": 32, "device": "cpu"}
    (line,) = [line for line in forecast_adaptation(base, [domain], **options).advice() if "has read only" in line]
    assert line.startswith(f"the model has read only 70 tokens; give at least {ENOUGH_WORDS:,} words")
    assert line.endswith("`bertsmith adapt MODEL TEXT --vocabulary new --out RUN`")


def test_with_a_new_model_as_an_arm_the_forecast_keeps_the_vocabulary_and_advises_no_new_one(
    base: Path, domain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"steps": 3, "max_length": 32, "device": "cpu"}
    monkeypatch.setattr(preparation, "ENOUGH_WORDS", 2_000)
    assert forecast_adaptation(base, [domain], **options).settings.vocabulary == "new"
    forecast = forecast_adaptation(base, [domain], from_scratch=True, **options)
    assert forecast.settings.vocabulary == "keep"
    assert not any(line.startswith("choice: ") or "--vocabulary new" in line for line in forecast.lines())


def test_nothing_is_said_about_a_model_that_has_read_much_or_an_unknown_number_of_tokens(
    domain: Path, tmp_path: Path
) -> None:
    for number, tokens in enumerate((FEW_TOKENS, None)):
        folder = tmp_path / str(number)
        save_pretrained(folder, untrained(CONFIG, 3), TOKENIZER, ModelMetadata(task="pretraining", tokens=tokens))
        forecast = forecast_adaptation(folder, [domain], max_length=32, device="cpu")
        assert forecast.settings.vocabulary == "keep"
        assert not any("has read only" in line for line in forecast.lines())


def test_text_in_another_language_and_in_other_letters_is_reported(base: Path, tmp_path: Path) -> None:
    (tmp_path / "russian.txt").write_text("\n".join("это был очень хороший фильм .\n" for _ in range(500)))
    advice = forecast_adaptation(base, [tmp_path / "russian.txt"], device="cpu").advice()
    assert "unknown to the vocabulary of the model: the text has letters that it lacks: о" in advice[0]
    assert "Use a model of this language" in advice[0]
    (tmp_path / "other.txt").write_text("\n".join("ass inss ofss the .\n" for _ in range(500)))
    advice = forecast_adaptation(base, [tmp_path / "other.txt"], device="cpu").advice()
    assert "probably in another language" in advice[0]


def test_unknown_signs_are_named_with_what_helps(base: Path, tmp_path: Path) -> None:
    (tmp_path / "signs.txt").write_text("\n".join("# the film + the plot # the ones .\n" for _ in range(500)))
    advice = forecast_adaptation(base, [tmp_path / "signs.txt"], device="cpu").advice()
    assert "because of signs that it lacks: # (2) + (1). --vocabulary graft adds the frequent ones, and" in advice[0]
    graft = forecast_adaptation(base, [tmp_path / "signs.txt"], vocabulary="graft", device="cpu")
    assert "Those that are frequent enough are among the added words" in graft.advice()[0]
    assert graft.before.unknown == 3
    assert graft.after.unknown == 0
    (tmp_path / "long.txt").write_text("\n".join(f"{'s' * 300} the film .\n" for _ in range(800)))
    advice = forecast_adaptation(base, [tmp_path / "long.txt"], device="cpu").advice()
    assert "unknown to the vocabulary of the model: they are longer than its tokenizer reads" in advice[0]


def test_what_cannot_be_adapted_is_refused_before_anything_is_written(
    base: Path, domain: Path, general: Path, tmp_path: Path
) -> None:
    def refused(match: str, kind: type[BertsmithError], **options: Any) -> None:
        model, texts = options.pop("model", base), options.pop("texts", [domain])
        with pytest.raises(kind, match=match):
            adapt(model, texts, tmp_path / "run", general=[general], **{**ONCE, **options})
        assert not (tmp_path / "run").exists()

    (tmp_path / "short.txt").write_text("the film was it .\n", encoding="utf-8")
    refused(f"at least {LEAST_WORDS:,} words; found 5 words", InputError, texts=[tmp_path / "short.txt"])
    refused("at least 10,000 words", InputError, vocabulary="new", pieces=500)
    refused("files or folders", ConfigError, texts=["-"])
    refused("did you mean 'graft'", ConfigError, vocabulary="graf")
    refused("one of minutes and steps", ConfigError, minutes=1.0)
    refused('`pieces` needs `vocabulary="new"`', ConfigError, pieces=50)
    refused("`train` needs `task`", ConfigError, train=domain)
    refused("`from_scratch=True` needs `task`", ConfigError, from_scratch=True)
    refused("no settings.json", RunError, resume=True)
    labelled = write_labelled(tmp_path / "labelled.csv")
    letters = tmp_path / "letters.txt"
    letters.write_text("\n\n".join(f"{words(20, n)} {chr(0x4E00 + n)} ." for n in range(120)))
    refused("room for the", VocabularyError, texts=[letters], task="classification", train=labelled, from_scratch=True)
    refused("held_out must be above 0", ConfigError, held_out=0.0)
    refused("minutes with `minutes`, or give `steps`", ConfigError, steps=None, minutes=1e-4)
    refused("found nothing there", InputError, texts=[tmp_path / "nothing.txt"])
    refused(
        "a language model|predicts masked pieces", ConfigError, model=write_base_model(tmp_path / "gpt", "openai-gpt")
    )
    (tmp_path / "plain.txt").write_text("\n".join(f"{words(20, n)} ." for n in range(120)))
    refused("words of the domain to add", ConfigError, texts=[tmp_path / "plain.txt"], vocabulary="graft")


@pytest.mark.parametrize("vocabulary", ["keep", "graft", "new"])
def test_a_model_without_a_masked_lm_head_gets_a_new_one(
    vocabulary: str, domain: Path, general: Path, tmp_path: Path
) -> None:
    save_pretrained(tmp_path / "encoder", untrained(CONFIG, 3), TOKENIZER, ModelMetadata(), trained=("pooler",))
    options = {**ONCE, "vocabulary": vocabulary, **({"pieces": 60} if vocabulary == "new" else {})}
    result = adapt(tmp_path / "encoder", [domain], tmp_path / "run", general=[general], **options)
    assert any("has no masked-LM head, so a new one is trained with it" in line for line in result.lines())
    assert "mlm" in load_any(result.model).parts
    assert all(set(loss) == {"after"} and "change" not in loss["after"] for loss in result.report["losses"].values())
    rows = {row[0]: row[1:] for row in result.table()[1]}
    before, after, change = rows["loss on domain text, nats per word"]
    assert (before, change) == ("–", "")
    assert float(after) > 0
    assert not (tmp_path / "run" / "before.json").exists()
    again = adapt(tmp_path / "encoder", [domain], tmp_path / "run", general=[general], resume=True, **options)
    assert again.report["losses"] == result.report["losses"]


def test_a_sentence_encoder_is_adapted_and_told_to_be_trained_again(base: Path, domain: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    save_pretrained(encoder, untrained(CONFIG, 3), TOKENIZER, ModelMetadata(), trained=())
    write_recipe(encoder, width=32, pooling="mean", max_length=32, prompts={})
    lines = forecast_adaptation(encoder, [domain], max_length=32, device="cpu").lines()
    assert any(
        "is not a sentence encoder: train its vectors with `bertsmith finetune --task pairs`" in line for line in lines
    )
    lines = forecast_adaptation(base, [domain], max_length=32, device="cpu").lines()
    assert not any("note:" in line for line in lines)
    assert not any("gain" in line for line in lines), "not measured for this model"
    make_static_vectors(base, tmp_path / "static")
    with pytest.raises(ConfigError, match="an encoder that reads its text in context"):
        adapt(tmp_path / "static", [domain], tmp_path / "run", **ONCE)


@pytest.mark.parametrize("architecture", ["xlm-roberta", "albert", "mpnet", "deberta-v2"])
def test_a_model_with_other_pieces_keeps_its_vocabulary(architecture: str, domain: Path, tmp_path: Path) -> None:
    model = write_base_model(tmp_path / "base", architecture)
    result = adapt(model, [domain], tmp_path / "run", general=[domain], **ONCE)
    assert result.report["settings"]["adaptation"]["vocabulary"] == "keep"
    pieces = result.report["fragmentation"]["field"]
    assert pieces["before"] == pieces["after"]
    assert pieces["before"]["pieces_per_word"] > 1
    losses = result.report["losses"]["field"]
    assert losses["before"]["per_word"] != losses["after"]["per_word"]
    assert load_any(result.model).require_tokenizer().settings == load_any(model).require_tokenizer().settings
    for options in ({"vocabulary": "graft"}, {"vocabulary": "new"}):
        with pytest.raises(
            ConfigError, match=r'a tokenizer of WordPieces, to extend .* use `vocabulary="keep"`, without'
        ):
            adapt(model, [domain], tmp_path / "other", **options, **ONCE)


@pytest.mark.parametrize("architecture", ["roberta", "modernbert"])
def test_pieces_that_include_the_space_before_a_sentence_are_refused(
    architecture: str, domain: Path, tmp_path: Path
) -> None:
    model = write_base_model(tmp_path / "base", architecture)
    with pytest.raises(
        ConfigError, match=r"the space before a sentence .* name a model with WordPieces or SentencePie"
    ):
        adapt(model, [domain], tmp_path / "run", **ONCE)
    assert not (tmp_path / "run").exists()


def test_the_third_arm_needs_word_pieces_too(domain: Path, tmp_path: Path) -> None:
    model = write_base_model(tmp_path / "base", "albert")
    labelled = write_labelled(tmp_path / "train.csv")
    with pytest.raises(ConfigError, match="without `from_scratch=True`"):
        adapt(model, [domain], tmp_path / "run", task="classification", train=labelled, from_scratch=True, **ONCE)
    assert not (tmp_path / "run").exists()


def test_a_model_with_added_tokens_is_refused_with_advice_that_adapt_can_follow(tmp_path: Path) -> None:
    pieces = [*TOKENIZER.vocabulary.pieces, "<url>"]
    tokens = [*TOKENIZER.added, AddedToken(content="<url>", id=len(pieces) - 1)]
    tokenizer = WordPieceTokenizer(Vocabulary(pieces, whole=1), TOKENIZER.rules, added=tokens)
    config = dataclasses.replace(CONFIG, vocab_size=len(pieces))
    save_pretrained(tmp_path / "base", untrained(config, seed=1), tokenizer, ModelMetadata())
    with pytest.raises(ConfigError) as caught:
        preparation._require_adaptable(load_any(tmp_path / "base"), "auto")
    assert caught.value.fix == "name a model without added tokens"
