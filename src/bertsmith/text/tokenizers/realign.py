"""Maps predicted pieces back to the characters of the original text.

Pieces have lost case, accents and white space. The words they come from have not, but may contain more than was
predicted: `Steve Smith's` for the pieces `steve smith`. So the predicted text is searched for in the basic tokens of
the words, and the match is mapped to the words by counting non-space characters.

Source: `get_final_text` in the original run_squad.py.
"""

from collections.abc import Iterable

from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.vocabulary import CONTINUATION


def join_pieces(pieces: Iterable[str]) -> str:
    """The text of consecutive pieces, with one space between words.

    >>> join_pieces(["steve", "smith", "##s", "'"])
    "steve smiths '"
    """
    joined = " ".join(pieces).replace(f" {CONTINUATION}", "").replace(CONTINUATION, "")
    return " ".join(joined.split())


def realign(predicted: str, words: str, rules: TextRules, before: int = 0) -> tuple[int, int]:
    """The characters (start, end) of `words` that match `predicted`; the whole of `words` if that is unclear.

    It is unclear if `predicted` does not occur in the basic tokens (a piece is [UNK]), or if the tokens have more or
    fewer characters than the words (an accent that was a separate character is gone). If there are several matches, the
    text of the first one is used, and among the matches with that text the one nearest to the prediction: in a text
    without spaces a word is long, and may contain the answer many times.

    Args:
        before: number of non-space characters in the pieces of `words` before the predicted ones.

    >>> realign("steve smith", "Steve Smith's", TextRules())
    (0, 11)
    >>> realign("steve [UNK]", "Steve Smith's", TextRules())
    (0, 13)
    >>> realign("7", "7年7月", TextRules()), realign("7", "7年7月", TextRules(), before=2)
    ((0, 1), (2, 3))
    """
    all_words = (0, len(words))
    tokens = " ".join(basic_tokens(words, rules))
    begin = tokens.find(predicted)
    if begin < 0 or not predicted:
        return all_words
    letters = [position for position, character in enumerate(words) if character != " "]
    if len(letters) != len(tokens) - tokens.count(" "):
        return all_words

    def characters(begin: int) -> tuple[int, int]:
        last = begin + len(predicted) - 1
        return letters[letter(begin)], letters[letter(last)] + 1

    def letter(position: int) -> int:
        return position - tokens.count(" ", 0, position)

    start, end = characters(begin)
    text, distance = words[start:end], abs(letter(begin) - before)
    while distance and (begin := tokens.find(predicted, begin + 1)) >= 0:
        nearer = characters(begin)
        if abs(letter(begin) - before) < distance and words[slice(*nearer)] == text:
            (start, end), distance = nearer, abs(letter(begin) - before)
    return start, end
