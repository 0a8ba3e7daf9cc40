"""Text rules as steps of `tokenizer.json`, for WordPieces and for byte pairs that are learned here.

The package `tokenizers` runs them, with the same words as `normalize.py` as the result.
"""

from typing import Any

from bertsmith.text.tokenizers import letter_marks, unspaced
from bertsmith.text.tokenizers.normalize import TextRules

# Drops categories Cc and Cf and the replacement character; then white space becomes spaces. Oniguruma's syntax.
_GOOGLE_DROPS = r"[\p{Cc}\p{Cf}\x{FFFD}&&[^\t\n\r]]"
_GOOGLE_SPACES = r"[\t\n\r\p{Zs}]"


def normalizer_json(rules: TextRules) -> dict[str, Any]:
    """The step that cleans text, changes its case and removes accents."""
    is_plain = rules.control_rule == "huggingface"
    bert = {
        "type": "BertNormalizer",
        "clean_text": is_plain,
        "handle_chinese_chars": rules.split_cjk,
        "strip_accents": False if rules.keeps_letter_marks else rules.strip_accents,
        "lowercase": rules.lowercase,
    }
    before = [] if is_plain else _google_steps()
    after = _only_accents() if rules.keeps_letter_marks else []
    return {"type": "Sequence", "normalizers": [*before, bert, *after]} if before or after else bert


def pre_tokenizer_json(rules: TextRules) -> dict[str, Any]:
    """The step that divides text into words."""
    bert = {"type": "BertPreTokenizer"}
    if not rules.split_unspaced:
        return bert
    split = {"type": "Split", "pattern": {"Regex": unspaced.PATTERN}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [bert, split]}


def rules_in(description: dict[str, Any]) -> dict[str, Any]:
    """The fields of `TextRules` that a `tokenizer.json` says; empty if its steps are others than these."""
    stated: dict[str, Any] = {}
    if description.get("pre_tokenizer") == pre_tokenizer_json(TextRules(split_unspaced=True)):
        stated["split_unspaced"] = True
    normalizer = description.get("normalizer")
    if not isinstance(normalizer, dict):
        return stated
    steps = normalizer.get("normalizers") if normalizer.get("type") == "Sequence" else [normalizer]
    steps = steps if isinstance(steps, list) else []
    if steps[:2] == _google_steps():
        stated["control_rule"], steps = "google", steps[2:]
    first, *others = steps or [None]
    if isinstance(first, dict) and first.get("type") == "BertNormalizer" and others in ([], _only_accents()):
        stated |= {
            "lowercase": first.get("lowercase"),
            "strip_accents": first.get("strip_accents"),
            "split_cjk": first.get("handle_chinese_chars"),
        }
        if others:
            stated |= {"strip_accents": None if first.get("lowercase") else True, "keep_letter_marks": True}
    return stated


def rules_of(description: dict[str, Any]) -> TextRules | None:
    """The text rules with the steps of a `tokenizer.json` with WordPieces; None if there are no such rules."""
    stated, longest = rules_in(description), description["model"].get("max_input_chars_per_word")
    flags = (stated.get(name) for name in ("lowercase", "split_cjk"))
    if not all(isinstance(flag, bool) for flag in flags) or type(longest) is not int or longest < 1:
        return None
    rules = TextRules(**stated, max_word_characters=longest)
    steps = (normalizer_json(rules), pre_tokenizer_json(rules))
    return rules if steps == (description.get("normalizer"), description.get("pre_tokenizer")) else None


def _google_steps() -> list[dict[str, Any]]:
    return [_replace(_GOOGLE_DROPS, ""), _replace(_GOOGLE_SPACES, " ")]


def _only_accents() -> list[dict[str, Any]]:
    """The steps that remove accents but not the marks that are letters."""
    return [{"type": "NFD"}, _replace(letter_marks.PATTERN, ""), {"type": "NFC"}]


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
