"""Tiny models of every architecture: two layers, 32 wide, written by `transformers` or drawn here."""

import dataclasses
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

from bertsmith.models.checkpoints.architectures import ARCHITECTURES as ARCHITECTURE_TABLE
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.encoders.albert import AlbertConfig
from bertsmith.models.encoders.awd_lstm import AwdLstmConfig
from bertsmith.models.encoders.bilstm import BiLstmConfig
from bertsmith.models.encoders.deberta import DebertaConfig
from bertsmith.models.encoders.distilbert import DistilBertConfig
from bertsmith.models.encoders.electra import ElectraConfig
from bertsmith.models.encoders.elmo import ElmoConfig
from bertsmith.models.encoders.eurobert import EuroBertConfig
from bertsmith.models.encoders.gpt import GptConfig
from bertsmith.models.encoders.gte import GteConfig
from bertsmith.models.encoders.modernbert import ModernBertConfig
from bertsmith.models.encoders.mpnet import MpnetConfig
from bertsmith.models.encoders.nomic import NomicBertConfig
from bertsmith.models.encoders.roberta import RobertaConfig, XlmRobertaConfig
from bertsmith.models.encoders.static import StaticConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder import Encoder
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from tasks.task_samples import CONFIG, TOKENIZER, WORDS

ARCHITECTURES = (
    "bert",
    "distilbert",
    "openai-gpt",
    "roberta",
    "electra",
    "albert",
    "modernbert",
    "mpnet",
    "deberta-v2",
)
ROTARY = ("nomic_bert", "gte", "eurobert")  # with gates, too
EVERY_ARCHITECTURE = (*ARCHITECTURES, *ROTARY, "awd-lstm", "elmo", "bilstm")  # also those that no other library has
WITH_HEADS = (
    "bert",
    "distilbert",
    "roberta",
    "electra",
    "albert",
    "modernbert",
    "mpnet",
    "deberta-v2",
)  # whose heads of tasks transformers has
OTHERS = (
    "distilbert",
    "roberta",
    "electra",
    "albert",
    "modernbert",
    "xlm-roberta",
    "mpnet",
    "deberta-v2",
    "nomic_bert",
    "gte",
    "eurobert",
)
WITH_OWN_TOKENIZER = (
    "albert",
    "modernbert",
    "xlm-roberta",
    "mpnet",
    "deberta-v2",
    "gte",
    "eurobert",
)  # as transformers writes it, in one file
CLASS_PREFIXES = {
    "distilbert": "DistilBert",
    "roberta": "Roberta",
    "electra": "Electra",
    "albert": "Albert",
    "modernbert": "ModernBert",
    "xlm-roberta": "XLMRoberta",
    "mpnet": "MPNet",
    "deberta-v2": "DebertaV2",
    "nomic_bert": "NomicBert",
    "gte": "Gte",
    "eurobert": "EuroBert",
}
HEADS = (
    "Model",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForMultipleChoice",
    "ForQuestionAnswering",
)


def has_class(architecture: str, head: str) -> bool:
    """Whether `transformers` has the class of an architecture with this head."""
    return hasattr(transformers, CLASS_PREFIXES[architecture] + head)


_ROBERTA_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_LINES = [f"the {word} {other}" for word in WORDS for other in ("film", ".", "?")]


@functools.cache
def byte_level_files() -> tuple[str, str]:
    """`vocab.json` and `merges.txt` of a byte-level BPE in which each word of the samples is one piece."""
    learner = tokenizers.ByteLevelBPETokenizer()
    learner.train_from_iterator(_LINES, 420, min_frequency=1, special_tokens=_ROBERTA_SPECIALS, show_progress=False)
    with tempfile.TemporaryDirectory() as folder:
        learner.save_model(folder)
        return tuple(Path(folder, name).read_text(encoding="utf-8") for name in ("vocab.json", "merges.txt"))


def unigram_pieces(special: list[str]) -> list[tuple[str, float]]:
    """Pieces with log-probabilities: the special ones, each word of the samples as one piece, and single characters."""
    words = sorted({word.lower() for word in (*WORDS, "the", "film")})
    letters = sorted({letter for word in words for letter in word} | set("abcdefghijklmnopqrstuvwxyz.?!,'-0123456789"))
    pieces = [(f"\u2581{word}", -4.0 - 0.01 * rank) for rank, word in enumerate(words)]
    return [*((piece, 0.0) for piece in special), *pieces, ("\u2581", -6.0), *((letter, -9.0) for letter in letters)]


@functools.cache
def peer_tokenizer(architecture: str) -> transformers.PreTrainedTokenizerFast:
    """The tokenizer of `transformers` for an architecture whose vocabulary is not that of the samples."""
    if architecture == "modernbert":
        return modern_tokenizer()
    if architecture == "eurobert":
        return llama_tokenizer()
    if architecture == "albert":
        return transformers.AlbertTokenizer(vocab=unigram_pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]))
    if architecture == "deberta-v2":
        return transformers.DebertaV2Tokenizer(vocab=unigram_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]))
    if architecture in ("xlm-roberta", "gte"):
        pieces = unigram_pieces(["<s>", "<pad>", "</s>", "<unk>"])
        return transformers.XLMRobertaTokenizer(vocab=[*pieces, ("<mask>", 0.0)])
    words = [piece for piece in TOKENIZER.vocabulary.pieces if piece not in TOKENIZER.vocabulary.special]
    pieces = ["<s>", "<pad>", "</s>", "[UNK]", *words, "<mask>"]
    return transformers.MPNetTokenizer(vocab={piece: id for id, piece in enumerate(pieces)})


@functools.cache
def modern_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE with the special pieces and the rows of BERT, as ModernBERT has it."""
    learner = tokenizers.ByteLevelBPETokenizer()
    special = {"unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
    learner.train_from_iterator(
        _LINES, 420, min_frequency=1, special_tokens=list(special.values()), show_progress=False
    )
    ids = [(piece, learner.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")]
    learner._tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=learner._tokenizer,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{name}_token": piece for name, piece in special.items()},
    )


@functools.cache
def llama_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A byte-level BPE with the splits of Llama 3 and the special pieces of EuroBERT."""
    start, end, mask = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
    splits = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    learner = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=True))
    learner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(splits), "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    learner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        min_frequency=1,
        special_tokens=[start, end, mask],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(_LINES, trainer)
    row = tokenizers.processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {start}:1 $B:1 {end}:1",
        special_tokens=[(piece, learner.token_to_id(piece)) for piece in (start, end)],
    )
    learner.post_processor = tokenizers.processors.Sequence([tokenizers.processors.ByteLevel(trim_offsets=True), row])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=learner,
        model_input_names=["input_ids", "attention_mask"],
        bos_token=start,
        eos_token=end,
        pad_token=end,
        mask_token=mask,
    )


def write_byte_level(folder: Path) -> None:
    """Writes `vocab.json` and `merges.txt`."""
    for name, text in zip(("vocab.json", "merges.txt"), byte_level_files(), strict=True):
        (folder / name).write_text(text, encoding="utf-8")


@functools.cache
def tokenizer_of(architecture: str) -> Tokenizer:
    """The tokenizer of an architecture: the WordPieces of the samples, or one of its own kind."""
    if architecture != "roberta" and architecture not in WITH_OWN_TOKENIZER:
        return TOKENIZER
    with tempfile.TemporaryDirectory() as folder:
        if architecture in WITH_OWN_TOKENIZER:
            peer_tokenizer(architecture).save_pretrained(folder)
        else:
            write_byte_level(Path(folder))
        tokenizer, _ = ARCHITECTURE_TABLE[architecture].read_tokenizer(Path(folder), ModelMetadata())
    return tokenizer


@functools.cache
def config_of(architecture: str, *, dropout: float = 0.1) -> EncoderConfig:
    """The shape of the samples of an architecture."""
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "initializer_range": 0.1,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    if architecture == "bert":
        return type(CONFIG)(**shape, vocab_size=CONFIG.vocab_size, max_position_embeddings=64)
    if architecture == "distilbert":
        heads = {"seq_classif_dropout": dropout, "qa_dropout": dropout}
        return DistilBertConfig(**shape, **heads, vocab_size=CONFIG.vocab_size, max_position_embeddings=64)
    if architecture == "static-vectors":
        return StaticConfig(hidden_size=32, vocab_size=CONFIG.vocab_size, hidden_dropout_prob=dropout)
    if architecture == "elmo":
        del shape["num_attention_heads"], shape["attention_probs_dropout_prob"]
        return ElmoConfig(**shape, vocab_size=CONFIG.vocab_size, max_position_embeddings=64)
    if architecture == "bilstm":
        width = {"hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 1.0, "hidden_dropout_prob": dropout}
        return BiLstmConfig(**width, vocab_size=CONFIG.vocab_size)
    if architecture == "awd-lstm":
        rates = AwdLstmConfig.dropout_changes(dropout)
        shape = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "initializer_range": 0.5}
        return AwdLstmConfig(**shape, vocab_size=CONFIG.vocab_size, **rates)
    if architecture == "openai-gpt":
        return GptConfig(
            **{**shape, "intermediate_size": 128}, vocab_size=CONFIG.vocab_size, max_position_embeddings=64
        )
    pieces = len(tokenizer_of(architecture).vocabulary)
    if architecture in ("electra", "albert"):
        # Of an ALBERT of three layers, the first two share their parameters.
        narrow = {"vocab_size": pieces, "max_position_embeddings": 64, "embedding_size": 16}
        if architecture == "electra":
            return ElectraConfig(**shape, **narrow)
        return AlbertConfig(
            **{**shape, "num_hidden_layers": 3}, **narrow, num_hidden_groups=2, classifier_dropout=dropout
        )
    if architecture == "modernbert":
        rates = ModernBertConfig.dropout_changes(dropout)
        # The second layer sees two tokens on each side; the third one sees all.
        return ModernBertConfig(
            **{**shape, **rates, "num_hidden_layers": 3},
            vocab_size=pieces,
            max_position_embeddings=64,
            global_attn_every_n_layers=2,
            local_attention=4,
        )
    if architecture == "deberta-v2":
        # Distances from 3 on share a row with others, and from 12 on all are the same.
        near = {"position_buckets": 4, "max_relative_positions": 12, "max_position_embeddings": 64}
        return DebertaConfig(**shape, **near, vocab_size=pieces, share_att_key=False)
    if architecture == "nomic_bert":
        return NomicBertConfig(**shape, vocab_size=pieces, max_position_embeddings=64, rope_factor=1.25)
    if architecture == "gte":
        return GteConfig(**shape, vocab_size=pieces, max_position_embeddings=64, rope_theta=20.0)
    if architecture == "eurobert":
        # Two heads share keys and values.
        return EuroBertConfig(**shape, vocab_size=pieces, max_position_embeddings=64, num_key_value_heads=2)
    kind = {"roberta": RobertaConfig, "xlm-roberta": XlmRobertaConfig, "mpnet": MpnetConfig}[architecture]
    return kind(**shape, vocab_size=pieces, max_position_embeddings=66)


def encoder_of(architecture: str) -> Encoder:
    """A sample of an architecture, which knows its vocabulary; its parameters are set by the caller."""
    encoder = new_encoder(config_of(architecture))
    encoder.read_vocabulary(tokenizer_of(architecture).vocabulary)
    return encoder


def write_base_model(path: object, architecture: str = "bert", seed: int = 0, **changes: Any) -> str:
    """An untrained model folder to start from, with pooler and masked-LM head; `changes` are those of its shape."""
    config = dataclasses.replace(config_of(architecture), **changes)
    model = untrained(config, seed, tokenizer_of(architecture).vocabulary)
    info = ModelMetadata.from_dict({"task": "pretraining"})
    save_pretrained(str(path), model, tokenizer_of(architecture), info)
    return str(path)


def peer_config(architecture: str, **changes: object) -> transformers.PretrainedConfig:
    """The shape of the samples as `transformers` has it; nothing is dropped."""
    values = config_of(architecture, dropout=0.0).to_dict()
    return transformers.AutoConfig.for_model(architecture, **{**values, **changes})


def peer(architecture: str, head: str, seed: int = 0, **changes: object) -> transformers.PreTrainedModel:
    """A model of `transformers` whose parameters, biases and norms too, are all at random."""
    torch.manual_seed(seed)
    kind = getattr(transformers, CLASS_PREFIXES[architecture] + head)
    model = kind._from_config(peer_config(architecture, **changes), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def write_peer(
    path: Path, architecture: str, head: str, *, description: bool = True, **changes: object
) -> transformers.PreTrainedModel:
    """A folder that `transformers` alone wrote, with its tokenizer; and the model.

    Args:
        description: with `tokenizer.json`; otherwise with the old files (`vocab.txt`, or `vocab.json` and
            `merges.txt`) alone.
    """
    model = peer(architecture, head, **changes)
    model.save_pretrained(path)
    if architecture in WITH_OWN_TOKENIZER:
        peer_tokenizer(architecture).save_pretrained(path)
        return model
    if architecture == "roberta":
        write_byte_level(path)
    else:
        TOKENIZER.vocabulary.save(path / "vocab.txt")
    if description:
        kind = getattr(
            transformers,
            "BertTokenizer" if architecture == "nomic_bert" else f"{CLASS_PREFIXES[architecture]}Tokenizer",
        )
        kind.from_pretrained(path).save_pretrained(path)
        for name in ("vocab.txt", "vocab.json", "merges.txt"):
            (path / name).unlink(missing_ok=True)
    return model


def change_json(path: Path, **values: object) -> None:
    """Sets keys of a JSON file; None removes one."""
    result = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps({key: value for key, value in result.items() if value is not None}), encoding="utf-8")
