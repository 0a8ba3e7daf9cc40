"""Words of scripts without spaces, split one character at a time; nothing is shared with the package."""

LONGEST = 16


def parts(word: str) -> list[str]:
    result, index = [], 0
    while index < len(word):
        end = _end(word, index)
        result.append(word[index:end])
        index = end
    return result


def _end(word: str, index: int) -> int:
    """Where the part that starts at `index` ends."""
    kind = _kind(word[index])
    if kind == "thai":
        return _thai_end(word, index)
    if kind == "khmer" and _is_khmer_letter(word[index]):
        index += 1
        while index < len(word) and (_is_khmer_mark(word[index]) or _stacks(word, index, "\u17d2", _is_khmer_letter)):
            index += 1 if _is_khmer_mark(word[index]) else 2
        return index
    if kind == "burmese" and _is_burmese_letter(word[index]):
        return _burmese_end(word, index + 1)
    for digits in ("០១២៣៤៥៦៧៨៩", "၀၁၂၃၄၅၆၇၈၉"):
        if word[index] in digits:
            return _run(word, index, digits.__contains__, len(word))
    if kind in ("hiragana", "katakana"):
        return _run(word, index, lambda character: _kind(character) == kind, LONGEST)
    return index + 1 if kind else _run(word, index, lambda character: not _kind(character), len(word))


def _run(word, index, belongs, most):
    end = index
    while end < len(word) and end - index < most and belongs(word[end]):
        end += 1
    return end


def _thai_end(word: str, index: int) -> int:
    begin = index
    if _is_first_vowel(word[index]):
        index += 1
    letters = 0
    while index < len(word) and letters < LONGEST:
        if _kind(word[index]) != "thai" or _is_first_vowel(word[index]) or _is_thai_mark(word[index]):
            break
        letters += 1
        index += 1
        while index < len(word) and _is_thai_mark(word[index]):
            index += 1
    return index if letters else begin + 1


def _burmese_end(word: str, index: int) -> int:
    while index < len(word):
        if "\u102b" <= word[index] <= "\u1038" or "\u103a" <= word[index] <= "\u103e":
            index += 1
        elif _stacks(word, index, "\u1039", _is_burmese_consonant):
            index += 2
        elif _is_burmese_consonant(word[index]):
            after = word[index + 1 : index + 3]
            if not after or (after[0] not in "\u1039\u103a" and after not in ("\u1037\u1039", "\u1037\u103a")):
                break
            index += 1
        else:
            break
    return index


def _stacks(word, index, sign, is_letter):
    return word[index] == sign and index + 1 < len(word) and is_letter(word[index + 1])


def _kind(character: str) -> str:
    code = ord(character)
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


def _is_first_vowel(character):
    return character in "เแโใไເແໂໃໄ"


def _is_thai_mark(character):
    code = ord(character) - (0x80 if ord(character) >= 0x0E80 else 0)
    if ord(character) >= 0x0E80:
        return 0x0E30 <= code <= 0x0E3C or 0x0E48 <= code <= 0x0E4E
    return 0x0E30 <= code <= 0x0E3A or code == 0x0E45 or 0x0E47 <= code <= 0x0E4E


def _is_khmer_letter(character):
    return "\u1780" <= character <= "\u17b3"


def _is_khmer_mark(character):
    return "\u17b4" <= character <= "\u17d1" or character in "\u17d3\u17dd"


def _is_burmese_letter(character):
    return "\u1000" <= character <= "\u102a" or character in "\u103f\u104e"


def _is_burmese_consonant(character):
    return "\u1000" <= character <= "\u1021"
