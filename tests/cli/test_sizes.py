"""The parameter counts, against the published ones."""

import json

from bertsmith.app.cli.sizes import gpt_parameters, transformer_parameters


def test_the_published_counts_are_printed(run) -> None:
    result = run("sizes")
    counts = {line.rsplit(None, 6)[0]: line.split()[-1] for line in result.out.splitlines()[1:-1]}
    assert counts == {
        "BERT tiny": "4,385,920",
        "BERT mini": "11,170,560",
        "BERT small": "28,763,648",
        "BERT medium": "41,373,184",
        "BERT base": "109,482,240",
        "BERT large": "335,141,888",
        "distilbert-base-uncased": "66,362,880",
        "distilbert-base-cased": "65,190,912",
        "distilbert-base-multilingual-cased": "134,734,080",
        "roberta-base": "124,645,632",
        "roberta-large": "355,359,744",
        "distilroberta-base": "82,118,400",
        "GPT (2018)": "116,534,784",
        "Transformer (2017)": "63,082,496",
    }


def test_the_feed_forward_network_is_four_times_as_wide_as_the_hidden_states(run) -> None:
    rows = [json.loads(line) for line in run("sizes", "--json").out.splitlines()]
    assert all(row["feed-forward"] == 4 * row["hidden"] for row in rows)
    assert [row["hidden"] for row in rows if row["model"] in ("BERT base", "BERT large")] == [768, 1024]


def test_the_vocabulary_can_be_another_one(run) -> None:
    rows = [json.loads(line) for line in run("sizes", "--vocab-size", 21128, "--json").out.splitlines()]
    assert {row["model"]: row["parameters"] for row in rows}["BERT base"] == 102_267_648


def test_the_transformer_is_encoder_decoder_and_one_table() -> None:
    assert transformer_parameters() == 18_914_304 + 25_224_192 + 18_944_000
    assert gpt_parameters() == 116_534_784
