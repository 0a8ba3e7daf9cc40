"""From predicted pieces back to the words of the text: what of the original stands for them.

Pieces have lost case, accents and white space. The words around them have not, but may hold more than was predicted:
`Steve Smith's` for the pieces `steve smith`. So the pieces are looked for in the basic tokens of the words, and the
place where they are found is carried over to the words by counting characters that are not spaces.

Source: `get_final_text` in the original run_squad.py.
"""

from collections.abc import Iterable

from bertsmith.text.normalize import TextRules, basic_tokens
from bertsmith.text.vocabulary import CONTINUATION


def join_pieces(pieces: Iterable[str]) -> str:
    """The text of pieces in a row, with one space between words.

    >>> join_pieces(["steve", "smith", "##s", "'"])
    "steve smiths '"
    """
    joined = " ".join(pieces).replace(f" {CONTINUATION}", "").replace(CONTINUATION, "")
    return " ".join(joined.split())


def realign(predicted: str, words: str, rules: TextRules) -> tuple[int, int]:
    """The characters (start, end) of `words` that `predicted` stands for; all of them where that cannot be told.

    It cannot be told where `predicted` is not among the basic tokens (a piece is [UNK]), or where the tokens have more
    or fewer characters than the words (an accent that was a character of its own is gone). The first place counts.

    Args:
        predicted: joined pieces.
        words: the whole words that hold them, one space between words.
        rules: by which the words became pieces.

    >>> realign("steve smith", "Steve Smith's", TextRules())
    (0, 11)
    >>> realign("steve [UNK]", "Steve Smith's", TextRules())
    (0, 13)
    """
    whole = (0, len(words))
    tokens = " ".join(basic_tokens(words, rules))
    begin = tokens.find(predicted)
    if begin < 0 or not predicted:
        return whole
    letters = [place for place, character in enumerate(words) if character != " "]
    if len(letters) != len(tokens) - tokens.count(" "):
        return whole
    last = begin + len(predicted) - 1
    first_letter = begin - tokens.count(" ", 0, begin)
    last_letter = last - tokens.count(" ", 0, last)
    return letters[first_letter], letters[last_letter] + 1
