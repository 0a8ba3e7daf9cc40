"""Records what the BertTokenizer of `transformers` makes of odd strings; run it to record again.

The vocabulary is made up here. Left out are the characters on which the two sides differ by design; they have their own
tests. `transformers` reads special pieces in a text as such, so ours is asked to do the same.
"""

import json
import random
import tempfile
from pathlib import Path

import transformers

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """
the of and to in un want wa runn hello world tweet xa new york john johan school cafe naive strasse
uber resume fi ss don t s m re ve ll it was is can not e mail www com http 2018 19 3 14 100 Hello
World New York John HELLO
""".split()
ENDINGS = """##ed ##ing ##want ##nax ##son ##s ##er ##est ##able ##ly ##n ##t ##e ##i ##o ##a ##e1 ##00 ##18 ##stral ##u
##\u0301 ##é ##ö ##ß ##ς ##か ##\u1161 ##\u11ab ##ING ##LLO""".split()
CHARACTERS = list(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789.,!?'\"-()[]#$%&*+/:;<=>@^_`{|}~"
    "«»¿¡…–—‘’“”„†•€£©®°±²³µ¶·½àáâäåçèéêëíïñóôöøúüßœŒÅÉÑÖÜ博推中国日本語、。「」ー你好かがきのハバパァガ"
    "\u1112\u1161\u11ab한글αβγδςσωάέабвгдйёЖЙאבשלוםعربيहिन्दीไทย😀👍𝒜𠀀"
)
ODD = """\
Héllo|HELLO|hello|ﬁne ﬂow|İstanbul|ıstanbul|straße STRASSE|Ångström|A\u030angstro\u0308m|\
re\u0301sume\u0301|naïve café|don't can't it's we've|e-mail@www.com|http://www.com/a?b=c#d|\
$3.14 100% (2018-19)|...!!!???|[MASK] [CLS][SEP]|the[MASK]ing|[mask]|[UNK][PAD]|[ MASK ]|\
ah博推zz|中国NEW YORK日本|かがき が か\u3099|ハﾊﾞｶﾞ ﾊ\uff9e|한글 \u1112\u1161\u11ab 한글!|𠀀𠀁x|\u2f00\u2e80|㐀䶿鿿|\
a\u00a0b|a\u2003b|a\u3000b|a\u2028b\u2029c|a\u200bb|a\u00adb|\ufeffthe|a\u200db|a\x00b|a\x05b|\
a\x0bb\x0cc|a\x1cb\x1fc|a\x85b|a\x7fb|\ufffdthe\ufffd|\ue000a\ue001|😀😀 👍🏽👨\u200d👩\u200d👧|\
🏴\U000e0067\U000e007f|\u0301|\u0301abc|a\u0301\u0302\u0303|!\u0301a|\u0345ᾳᾼ|Ǆ ǅ ǆ|Åå Åå|ſ ẞ|\
Ω K Å|ϓϔ|\u037e\u0387\u1fef|¿qué? ¡sí!|“quotes” ‘single’ «guillemets» „low“|a–b—c…d|\
½ ² ³ ™ ℃ Ⅷ|١٢٣ १२३|שלום עולם|عربي العربية|हिन्दी में|ไทย ภาษาไทย|Ёлка ёлка Йод йод|ΑΒΓ άέ Άέ|\
x'y`z^w~v|<tag>&amp;</tag>|a_b__c|C++ C# .NET|1,000,000.00|\t tabs\tand\nlines\r\nhere |\
unwanted,running UNwantéd|tweeting xanax""".split("|")
OUTPUT = Path(__file__).with_name("bert_tokenizer.json")


def texts() -> list[str]:
    """The odd strings by hand, the empty ones, long words and random mixtures."""
    random_numbers = random.Random(2018)
    pool = [*CHARACTERS, *[" "] * 30, *WORDS * 2, *["\u0301", "\u200b", "\u00a0", "\n", "[MASK]"]]
    # Greek capitals are left to a test of their own: a Σ at the end of a word differs.
    mixed = ["".join(random_numbers.choices(pool, k=random_numbers.randint(1, 24))) for _ in range(220)]
    long_words = ["a" * 99, "a" * 100, "a" * 101, "é" * 100, "é" * 101, "e\u0301" * 100, "x" * 100 + "!" + "a" * 101]
    return ["", " ", " \n\t ", *ODD, *long_words, *mixed]


def record() -> dict[str, object]:
    """The vocabulary, and for every text the ids and character offsets of an uncased and a cased tokenizer."""
    marked = [f"##{character}" for character in CHARACTERS if character.isalnum()][::2]
    vocabulary = list(dict.fromkeys([*SPECIALS, *WORDS, *ENDINGS, *CHARACTERS, *marked]))
    cases = [{"text": text} for text in texts()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
        for name, lowercase in (("uncased", True), ("cased", False)):
            tokenizer = transformers.BertTokenizer(str(path), do_lower_case=lowercase)
            for case in cases:
                result = tokenizer(case["text"], add_special_tokens=False, return_offsets_mapping=True)
                case[name] = {"ids": result["input_ids"], "offsets": [list(o) for o in result["offset_mapping"]]}
    return {"transformers": transformers.__version__, "vocabulary": vocabulary, "cases": cases}


if __name__ == "__main__":
    lines = json.dumps(record(), ensure_ascii=True).replace('{"text"', '\n{"text"')
    OUTPUT.write_text(lines + "\n", encoding="utf-8")
