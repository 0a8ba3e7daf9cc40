import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.counted_draws import instance_keys
from bertsmith.training.pretraining.masking import Masker
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.targets import Targets
from oracles.pretraining_oracle import masks_of_row

WORDS = [f"w{number}" for number in range(40)]
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{word}" for word in WORDS)])

PARTS = st.lists(st.integers(0, len(VOCABULARY) - 1), min_size=1, max_size=40)
ROWS = st.lists(st.tuples(PARTS, PARTS | st.none()), min_size=1, max_size=5)


def keys_of(number: int, seed: int = 0) -> np.ndarray:
    return instance_keys(seed, 0, np.arange(number), np.zeros(number, dtype=np.int64))


def packed(rows: list[tuple[list[int], list[int] | None]]) -> list[list[int]]:
    return [[2, *first, 3] if second is None else [2, *first, 3, *second, 3] for first, second in rows]


def mask(rows: list[list[int]], settings: PretrainingDataSettings, keys: np.ndarray) -> Targets:
    flat = np.array([token for row in rows for token in row], dtype=np.int32)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    return Masker(VOCABULARY, settings).mask_rows(flat, lengths, keys)


def even_rows(number: int, length: int) -> list[list[int]]:
    """Rows of whole words and continuations; the ids say nothing about the masks."""
    rng = np.random.default_rng(length)
    text = rng.integers(5, len(VOCABULARY), size=(number, length - 3))
    return [[2, *row[: length // 2], 3, *row[length // 2 :], 3] for row in text.tolist()]


@given(
    rows=ROWS.map(packed),
    whole_word=st.booleans(),
    share=st.sampled_from([0.15, 0.4, 0.001, 1.0]),
    ways=st.sampled_from([(0.8, 0.1, 0.1), (1, 0, 0), (0, 0.2, 0.8), (0, 0, 1)]),
    most=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 9),
)
def test_masks_equal_those_of_the_obvious_generator_from_the_same_draws(
    rows: list[list[int]], whole_word: bool, share: float, ways: tuple[float, float, float], most: int | None, seed: int
) -> None:
    """Also special pieces in the text, and pieces of a word whose beginning was cut away."""
    settings = PretrainingDataSettings(
        whole_word=whole_word, masked_share=share, max_predictions=most,
        mask_share=ways[0], keep_share=ways[1], random_share=ways[2],
    )  # fmt: skip
    keys = keys_of(len(rows), seed)
    result = mask(rows, settings, keys)
    end, output, positions, originals, per_row = 0, [], [], [], []
    for row, key in zip(rows, keys.tolist(), strict=True):
        expected = masks_of_row(
            row,
            VOCABULARY.pieces,
            share=share,
            most=settings.most_predictions,
            ways=ways[:2],
            whole_word=whole_word,
            key=key,
        )
        output += expected[0]
        positions += [end + position for position in expected[1]]
        originals += expected[2]
        per_row.append(len(expected[1]))
        end += len(row)
    assert result.token_ids.tolist() == output
    assert result.positions.tolist() == positions
    assert result.target_ids.tolist() == originals
    assert result.per_row.tolist() == per_row


def test_masks_of_a_row_do_not_depend_on_the_rows_next_to_it() -> None:
    rows, keys = even_rows(12, 60), keys_of(12)
    together = mask(rows, PretrainingDataSettings(), keys).token_ids.reshape(12, 60)
    for order in ([5], [11, 5, 2], [5, 6, 7, 8, 9, 10]):
        some = mask([rows[row] for row in order], PretrainingDataSettings(), keys[order]).token_ids
        assert some.reshape(len(order), 60).tolist() == together[order].tolist()


def test_input_rows_are_not_modified() -> None:
    flat = np.array([2, 7, 8, 9, 10, 3], dtype=np.int32)
    Masker(VOCABULARY, PretrainingDataSettings(masked_share=1.0)).mask_rows(flat, np.array([6]), keys_of(1))
    assert flat.tolist() == [2, 7, 8, 9, 10, 3]


@pytest.mark.parametrize(
    ("length", "most", "number"),
    # 0.15 of 10 and 50 are halves, which Python rounds to even; the least is one; the cap is a cap.
    [
        (4, None, 1),
        (10, None, 2),
        (50, None, 8),
        (30, None, 4),
        (128, None, 19),
        (128, 20, 19),
        (512, None, 77),
        (512, 20, 20),
    ],
)
def test_the_number_of_predictions_follows_the_length_with_special_tokens(
    length: int, most: int | None, number: int
) -> None:
    rows = even_rows(3, length)
    settings = PretrainingDataSettings(max_length=512, max_predictions=most)
    assert mask(rows, settings, keys_of(3)).per_row.tolist() == [number] * 3


@pytest.mark.parametrize("ways", [(0.8, 0.1, 0.1), (1, 0, 0), (0.8, 0, 0.2), (0.8, 0.2, 0), (0, 0.2, 0.8), (0, 0, 1)])
def test_shares_of_the_masking_ablation_hold(ways: tuple[float, float, float]) -> None:
    """The rows of the ablation table of the paper (appendix C.2), each within five standard deviations."""
    rows, keys = even_rows(2000, 128), keys_of(2000)
    result = mask(rows, PretrainingDataSettings(mask_share=ways[0], keep_share=ways[1], random_share=ways[2]), keys)
    now, number, size = result.token_ids[result.positions], len(result.positions), len(VOCABULARY)
    assert number == 2000 * 19
    # A random piece may be [MASK] or the original piece.
    shares = {
        "mask": (now == VOCABULARY.mask_id, ways[0] + ways[2] / size),
        "same": (now == result.target_ids, ways[1] + ways[2] / size),
    }
    for name, (flags, share) in shares.items():
        assert abs(flags.sum() - number * share) <= 5 * np.sqrt(number * share * (1 - share)), name


def test_random_pieces_are_drawn_evenly_from_the_whole_vocabulary() -> None:
    """Special pieces included."""
    settings = PretrainingDataSettings(mask_share=0, keep_share=0, random_share=1)
    result = mask(even_rows(4000, 128), settings, keys_of(4000))
    counts = np.bincount(result.token_ids[result.positions], minlength=len(VOCABULARY))
    expected = len(result.positions) / len(VOCABULARY)
    freedom = len(VOCABULARY) - 1
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("whole_word", [False, True])
def test_every_position_is_predicted_equally_often_but_never_a_special_one(whole_word: bool) -> None:
    """Whole words only: else a word is less likely the longer it is."""
    rng = np.random.default_rng(3)
    text = rng.integers(5, 45, size=(6000, 61))
    rows = [[2, *row[:30], 3, *row[30:], 3] for row in text.tolist()]
    result = mask(rows, PretrainingDataSettings(whole_word=whole_word), keys_of(6000))
    counts = np.bincount(result.positions % 64, minlength=64)
    assert counts[[0, 31, 63]].tolist() == [0, 0, 0]
    share = 10 / 61
    assert result.per_row.tolist() == [10] * 6000
    inner = np.delete(counts, [0, 31, 63])
    assert (np.abs(inner - 6000 * share) < 5 * np.sqrt(6000 * share * (1 - share))).all()


def test_positions_are_ascending_and_unique() -> None:
    result = mask(even_rows(500, 100), PretrainingDataSettings(masked_share=0.9), keys_of(500))
    assert (np.diff(result.positions) > 0).all()


def test_whole_words_are_masked_whole() -> None:
    """Words of three pieces: of the nine predictions of a row of 62 tokens, each word takes three."""
    word = [VOCABULARY.index[piece] for piece in ("w0", "##w1", "##w2")]
    result = mask([[2, *word * 20, 3]] * 50, PretrainingDataSettings(whole_word=True), keys_of(50))
    assert result.per_row.tolist() == [9] * 50
    assert result.target_ids.tolist() == word * 150


def test_a_word_that_would_exceed_the_number_is_skipped_for_a_shorter_one() -> None:
    long = [VOCABULARY.index["w0"]] + [VOCABULARY.index["##w1"]] * 9
    rows = [[2, *long, 9, 3]] * 30
    result = mask(rows, PretrainingDataSettings(whole_word=True), keys_of(30))
    assert result.target_ids.tolist() == [9] * 30
    assert mask([[2, *long, 3]], PretrainingDataSettings(whole_word=True), keys_of(1)).per_row.tolist() == [0]


def test_a_row_of_special_tokens_has_nothing_to_predict() -> None:
    for whole_word in (False, True):
        result = mask([[2, 3, 3], [2, 9, 3]], PretrainingDataSettings(whole_word=whole_word), keys_of(2))
        assert result.per_row.tolist() == [0, 1]
