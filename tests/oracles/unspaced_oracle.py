"""Words of scripts without spaces, split one character at a time; nothing is shared with the package."""

LONGEST = 16


def parts(word: str) -> list[str]:
    result, place = [], 0
    while place < len(word):
        end = _end(word, place)
        result.append(word[place:end])
        place = end
    return result


def _end(word: str, place: int) -> int:
    """Where the part that starts at `place` ends."""
    kind = _kind(word[place])
    if kind == "thai":
        return _thai_end(word, place)
    if kind == "khmer" and _is_khmer_letter(word[place]):
        place += 1
        while place < len(word) and (_is_khmer_mark(word[place]) or _stacks(word, place, "\u17d2", _is_khmer_letter)):
            place += 1 if _is_khmer_mark(word[place]) else 2
        return place
    if kind == "burmese" and _is_burmese_letter(word[place]):
        return _burmese_end(word, place + 1)
    for digits in ("០១២៣៤៥៦៧៨៩", "၀၁၂၃၄၅၆၇၈၉"):
        if word[place] in digits:
            return _run(word, place, digits.__contains__, len(word))
    if kind in ("hiragana", "katakana"):
        return _run(word, place, lambda one: _kind(one) == kind, LONGEST)
    return place + 1 if kind else _run(word, place, lambda one: not _kind(one), len(word))


def _run(word, place, belongs, most):
    end = place
    while end < len(word) and end - place < most and belongs(word[end]):
        end += 1
    return end


def _thai_end(word: str, place: int) -> int:
    begin = place
    if _is_first_vowel(word[place]):
        place += 1
    letters = 0
    while place < len(word) and letters < LONGEST:
        if _kind(word[place]) != "thai" or _is_first_vowel(word[place]) or _is_thai_mark(word[place]):
            break
        letters += 1
        place += 1
        while place < len(word) and _is_thai_mark(word[place]):
            place += 1
    return place if letters else begin + 1


def _burmese_end(word: str, place: int) -> int:
    while place < len(word):
        if "\u102b" <= word[place] <= "\u1038" or "\u103a" <= word[place] <= "\u103e":
            place += 1
        elif _stacks(word, place, "\u1039", _is_burmese_consonant):
            place += 2
        elif _is_burmese_consonant(word[place]):
            after = word[place + 1 : place + 3]
            if not after or (after[0] not in "\u1039\u103a" and after not in ("\u1037\u1039", "\u1037\u103a")):
                break
            place += 1
        else:
            break
    return place


def _stacks(word, place, sign, is_letter):
    return word[place] == sign and place + 1 < len(word) and is_letter(word[place + 1])


def _kind(one: str) -> str:
    code = ord(one)
    if 0x0E00 <= code <= 0x0EFF:
        return "thai"
    if 0x1780 <= code <= 0x17FF:
        return "khmer"
    if 0x1000 <= code <= 0x109F:
        return "burmese"
    if 0x3041 <= code <= 0x309F:
        return "hiragana"
    if 0x30A1 <= code <= 0x30FF or 0x31F0 <= code <= 0x31FF or 0xFF66 <= code <= 0xFF9F:
        return "katakana"
    return ""


def _is_first_vowel(one):
    return one in "เแโใไເແໂໃໄ"


def _is_thai_mark(one):
    code = ord(one) - (0x80 if ord(one) >= 0x0E80 else 0)
    if ord(one) >= 0x0E80:
        return 0x0E30 <= code <= 0x0E3C or 0x0E48 <= code <= 0x0E4E
    return 0x0E30 <= code <= 0x0E3A or code == 0x0E45 or 0x0E47 <= code <= 0x0E4E


def _is_khmer_letter(one):
    return "\u1780" <= one <= "\u17b3"


def _is_khmer_mark(one):
    return "\u17b4" <= one <= "\u17d1" or one in "\u17d3\u17dd"


def _is_burmese_letter(one):
    return "\u1000" <= one <= "\u102a" or one in "\u103f\u104e"


def _is_burmese_consonant(one):
    return "\u1000" <= one <= "\u1021"
