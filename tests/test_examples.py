"""The examples with small settings: each runs without a network, and shows what it claims."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.py"))


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that the test names, imported so that it finds the modules shared by the examples."""
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location(f"example_{request.param}", EXAMPLES / f"{request.param}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["01_text_to_model"], indirect=True)
def test_from_a_text_to_a_model_that_fills_a_mask(example, tmp_path, capsys):
    scores, best, chances = example.main(tmp_path, steps=60, documents=300)
    assert scores["held_out_mlm_loss"] < scores["held_out_unigram_entropy"]
    assert len(best) == len(example.GAPS)
    assert all(0 < chance < 1 for chance in chances)
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
    assert example.GAPS[0] in capsys.readouterr().out


@pytest.mark.parametrize("example", ["02_why_masks"], indirect=True)
def test_without_masks_both_sides_make_the_loss_vanish_and_teach_nothing(example):
    result = example.main(steps=100, sentences=2000)
    leak, twin, masked = result["both sides, no masks"], result["left-to-right"], result["masked"]
    assert leak[0] < 0.3 < min(twin[0], masked[0])
    assert leak[1] > max(twin[1], masked[1]) + 0.3


@pytest.mark.parametrize("example", ["03_positions"], indirect=True)
def test_positions_matter_where_order_does(example):
    result = example.main(seeds=1, kinds=("absolute", "none"))
    right = {setting: scores[0, 1] for setting, (scores, _) in result.items()}
    assert right["animals", "absolute"] > right["animals", "none"] + 0.2
    assert right["shopping", "absolute"] == pytest.approx(right["shopping", "none"], abs=0.05)


@pytest.mark.parametrize("example", ["03_positions"], indirect=True)
def test_only_a_model_without_positions_takes_words_for_a_bag(example):
    result = example.main(steps=4, rows=200, seeds=1)
    for language in ("animals", "shopping"):
        differences = {kind: result[language, kind][1] for kind in example.KINDS}
        assert differences["none"] < 1e-5 < 1e-2 < min(differences["absolute"], differences["sinusoidal"])


@pytest.mark.parametrize("example", ["04_attention"], indirect=True)
def test_the_weights_that_are_shown_make_a_weighted_sum(example, capsys):
    attentions = example.main(steps=20, documents=100)
    assert attentions.shape == (2, 2, 15, 15)
    np.testing.assert_allclose(attentions.sum(-1), 1, rtol=1e-5)
    printed = capsys.readouterr().out.splitlines()
    by_name = {line[:10].strip(): line[10:].split() for line in printed[:4]}
    assert by_name["token"][0] == "[CLS]"
    assert by_name["segment id"] == ["0"] * 8 + ["1"] * 7
    assert by_name["position"] == [str(position) for position in range(15)]
    assert len(printed[-15:]) == 15
    assert all("%" in line for line in printed[-15:])


@pytest.mark.parametrize("example", ["05_spam_filter"], indirect=True)
def test_a_spam_filter_gives_each_mail_percentages_that_sum_to_100(example, tmp_path, capsys):
    example.main(tmp_path, steps=20, epochs=2)
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith(tuple(f"  {mail}" for mail in example.MAILS))]
    answers = [re.findall(r"(\d+)% ([A-Z][A-Za-z ]*?)(?: /|$)", line) for line in lines]
    assert [len(answer) for answer in answers] == [2, 2, 2, 4, 4, 4]
    assert all(sum(int(share) for share, _ in answer) == 100 for answer in answers)
    assert {name for _, name in answers[-1]} == {"Spam", "Not Spam", "Social", "Promotion"}


@pytest.mark.slow
@pytest.mark.parametrize("example", ["05_spam_filter"], indirect=True)
def test_a_spam_filter_knows_spam(example, tmp_path):
    assert example.main(tmp_path)["spam"] == ["Spam", "Spam", "Not Spam"]


@pytest.mark.parametrize("example", ["06_claims"], indirect=True)
def test_the_sentences_of_an_article_are_ranked_by_two_ways_of_finding_claims(example, tmp_path, capsys):
    result = example.main(tmp_path, steps=20, epochs=2, article="Dr. Wu spoke. Fares rose by 2 percent. Why?")
    assert list(result) == ["fine-tuned", "vectors"]
    *_, first, second, third = capsys.readouterr().out.splitlines()
    ranked = [line.split("  ")[-1] for line in (first, second, third)]
    in_order = ["Dr. Wu spoke.", "Fares rose by 2 percent.", "Why?"]
    assert ranked == [in_order[index] for index in np.argsort(-result["fine-tuned"])]
    for chances in result.values():
        assert chances.shape == (3,)
        assert np.all((chances > 0) & (chances < 1))


@pytest.mark.parametrize("example", ["06_claims"], indirect=True)
def test_a_finished_claim_model_is_asked_and_nothing_is_fine_tuned(example, tmp_path):
    article = "Dr. Wu spoke. Fares rose by 2 percent."
    first = example.main(tmp_path / "one", steps=20, epochs=2, article=article)
    again = example.main(
        tmp_path / "two", str(tmp_path / "one" / "base"), article, claim_model=str(tmp_path / "one" / "fine-tuned")
    )
    for arm, chances in first.items():
        assert again[arm] == pytest.approx(chances, abs=1e-5)
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
@pytest.mark.parametrize("example", ["06_claims"], indirect=True)
def test_sentences_with_figures_rank_above_those_that_state_nothing(example, tmp_path):
    for chances in example.main(tmp_path).values():
        fares, question, belief, never = chances[[2, 3, 4, 9]]
        assert fares > 0.5 > max(question, belief, never)


@pytest.mark.parametrize("example", ["07_next_sentence"], indirect=True)
def test_the_most_likely_candidate_is_the_next_sentence(example, tmp_path, capsys):
    chosen, right, turned = example.main(tmp_path, steps=20, stories=4)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == example.FIRST
    assert printed[1].endswith(chosen)
    assert sorted(line[8:] for line in printed[1:5]) == sorted(example.CANDIDATES)
    assert {right * 4, turned * 4} <= set(range(5))


@pytest.mark.slow
@pytest.mark.parametrize("example", ["07_next_sentence"], indirect=True)
def test_what_goes_together_is_learned_better_than_what_comes_first(example, tmp_path):
    chosen, right, turned = example.main(tmp_path)
    assert chosen == "then she slices the bread ."
    assert right > 0.9
    assert turned > 0.1


@pytest.mark.parametrize("example", ["08_word_sense"], indirect=True)
def test_every_layer_has_a_vector_of_a_word_and_a_nearest_neighbor(example, tmp_path):
    texts = ("The bank of the river.", "The bank of the river.")
    by_layer, cosines, by_gloss = example.main(tmp_path, compared=("bank", *texts), steps=20, epochs=0.1)
    assert cosines == pytest.approx([1, 1, 1], abs=1e-5)
    assert len(by_layer) == 3
    assert {round(48 * share, 6) for share in (*by_layer, by_gloss)} <= set(range(49))
    assert all(notion in example.__doc__ for notion in ("Ambiguity", "Word sense disambiguation", "Coreference"))


@pytest.mark.slow
@pytest.mark.parametrize("example", ["08_word_sense"], indirect=True)
def test_only_vectors_that_saw_the_sentence_tell_the_sense_of_a_word(example, tmp_path):
    by_layer, _, by_gloss = example.main(tmp_path)
    assert by_layer[0] < 0.65 < 0.9 < min(by_layer[1:])
    assert by_gloss > 0.9


@pytest.mark.parametrize("example", ["09_coreference"], indirect=True)
def test_scores_of_pairs_and_masks_both_name_somebody(example, tmp_path, capsys):
    by_pairs, by_masks = example.main(tmp_path, steps=20, epochs=1)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "200 texts to learn from, 88 others to ask"
    for line in printed[1:4]:
        meeting, named = line.split("  she = ")
        assert named == "neither" or f"{named} " in meeting
    assert printed[4].startswith(f"fine-tuned: {by_pairs:.0%} of the answers right")
    assert printed[5].startswith("nearest candidate before: ")
    assert f"masks: {by_masks:.0%}" in printed[-1]


@pytest.mark.slow
@pytest.mark.parametrize("example", ["09_coreference"], indirect=True)
def test_a_pronoun_is_resolved_by_pairs_of_mentions_and_by_masks(example, tmp_path):
    by_pairs, by_masks = example.main(tmp_path)
    assert by_pairs > 0.9
    assert by_masks > 0.65


@pytest.mark.parametrize("example", ["10_own_head"], indirect=True)
def test_both_heads_are_trained_and_scored(example, tmp_path, capsys):
    scores = example.main(tmp_path, steps=20, epochs=1, seeds=1)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "40 mails to learn from, 40 to ask"
    for line, (name, (score,)) in zip(printed[1:], scores.items(), strict=True):
        assert line.startswith(name)
        assert line.endswith(f"({score:.0%})")
    counts = [int(re.search(r"([\d,]+) parameters", line)[1].replace(",", "")) for line in printed[1:]]
    assert counts[1] - counts[0] == 64 * 64 + 64  # the layer that the linear head does not have


def test_a_village_has_verbs_that_agree(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    toy = importlib.import_module("toy")
    for sentences in toy.village(50, np.random.default_rng(1)):
        several = " they " in sentences[1]
        assert all(sentence.split()[2].endswith("s") != several for sentence in sentences)


def test_every_example_is_documented():
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    assert SCRIPTS
    assert all(f"examples/{script.name}" in page for script in SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs_as_a_program(script):
    command = [sys.executable, "-W", "error", str(script)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout
