"""Settings that other tools write into JSON files, with values that `fuzz_files.py` tries."""

from collections.abc import Mapping
from typing import Any

# By the file that has them, with values that change what a model computes.
SETTINGS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "config.json": {
        "model_type": (
            "roberta",
            "distilbert",
            "albert",
            "electra",
            "mpnet",
            "modernbert",
            "deberta-v2",
            "openai-gpt",
            "t5",
        ),
        "hidden_act": ("gelu_pytorch_tanh", "swish", "gelu_10", "quick_gelu"),
        "position_embedding_type": ("relative_key", "alibi"),
        "is_decoder": (True,),
        "add_cross_attention": (True,),
        "tie_word_embeddings": (False,),
        "quantization_config": ({"quant_method": "awq"}, {}),
        "pruned_heads": ({"0": [1]},),
        "architectures": (["BertForSequenceClassification"], ["BertForMultipleChoice"], [], "x"),
        "problem_type": ("regression", "multi_label_classification", "x"),
        "id2label": ({"0": "a", "1": "a"}, {"1": "a"}, {"0": None, "1": "b"}, {}),
        "num_labels": (0, 1, 7),
        "pad_token_id": (-1, 5, None),
        "type_vocab_size": (0, 1, 3),
        "rope_parameters": ({"full_attention": {"rope_type": "yarn"}},),
        "sentence_transformers": ({"activation_fn": "torch.nn.modules.activation.GELU"}, {"activation_fn": None}),
    },
    "tokenizer.json": {
        "normalizer": (
            None,
            {"type": "NFKC"},
            {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "Replace"}]},
            {"type": "BertNormalizer", "lowercase": "yes"},
            {"type": "Prepend", "prepend": "_"},
            {"type": "mine"},
        ),
        "pre_tokenizer": (
            None,
            {"type": "Whitespace"},
            {"type": "ByteLevel", "add_prefix_space": True},
            {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Removed", "invert": False},
            {"type": "Sequence", "pretokenizers": [{"type": "BertPreTokenizer"}, {"type": "Digits"}]},
        ),
        "post_processor": (
            None,
            {"type": "BertProcessing", "sep": ["[SEP]", 10**6], "cls": ["[CLS]", 2]},
            {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]"]},
            {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
            {"type": "Sequence", "processors": [None]},
        ),
        "added_tokens": (
            None,
            [],
            [{"id": 0, "content": ""}],
            [{"id": -1, "content": "x", "special": True}],
            [{"id": 3, "content": "[SEP]", "normalized": True, "lstrip": 1}],
        ),
        "decoder": (None, {"type": "ByteFallback"}, {"type": "WordPiece"}),
        "truncation": ({"max_length": 2, "strategy": "LongestFirst", "stride": 5, "direction": "Left"}, {}),
        "padding": ({"strategy": {"Fixed": 10**6}}, "x"),
        "model": (
            {"type": "WordPiece", "vocab": {}, "unk_token": "[UNK]"},
            {"type": "WordLevel", "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 2}, "unk_token": "[UNK]"},
            {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"], "a b"]},
            {"type": "Unigram", "vocab": [["[UNK]", 0.0], ["a", None]], "unk_id": 7},
            {"vocab": {"[PAD]": 0, "[UNK]": 1}},
        ),
    },
    "modules.json": {
        "type": ("sentence_transformers.models.Dense", "mine.Pooling", "sentence_transformers.models.Normalize", "", 0),
        "path": ("2_Normalize", "..", "/", "", None),
        "kwargs": (["task"], {}),
    },
    "config_sentence_transformers.json": {
        "truncate_dim": (1, 10**6, -1, "x"),
        "model_type": ("CrossEncoder", "SparseEncoder", 1),
        "prompts": ({"query": "q: "}, {"query": None}, []),
        "default_prompt_name": ("query", "", 1),
        "similarity_fn_name": ("dot",),
    },
    "sentence_bert_config.json": {
        "max_seq_length": (1, 3, 10**9, -1, 0.5),
        "do_lower_case": (True, "yes"),
        "transformer_task": ("sequence-classification", "fill-mask"),
        "modality_config": ({}, {"text": {}}, {"image": {}}, []),
        "query_length": (4,),
        "model_args": ({"trust_remote_code": True}, {"dtype": "float16"}),
    },
}
