"""The model card, `README.md` of a model folder: what the model is, its training data, its scores, how to use it.

Every line comes from the model and its metadata, so a folder explains itself wherever it is copied. What a program
cannot know (licence, language, intended use) is left to the person who publishes the model, and the card says so.

Source: Mitchell et al. (2019), "Model Cards for Model Reporting", for the content of a card; the header is that of
huggingface.co/docs/hub/model-cards.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from bertsmith.checkpoints.model_folder import parts_of
from bertsmith.files import write_text
from bertsmith.model.config import EncoderConfig
from bertsmith.model.our_names import APART, CONCAT, OWN_HEAD, PAIR, READER, READERS, part_of
from bertsmith.model_files.metadata import CARD, METADATA, SIMILARITY, WHOLE_ROWS, ModelMetadata
from bertsmith.model_files.weakness import weakness_of
from bertsmith.text.tokenizer import Tokenizer

LIBRARIES = {  # by the hub's names
    "sentence-transformers": "It also loads in `sentence-transformers`, with the same vectors.",
    "transformers": "It also loads in `transformers`.",
    "tf": "Google's BERT code for TensorFlow can read it too.",
    "bertsmith": "No other library reads it.",
    "onnx": "Token ids come from the vocabulary next to it; bertsmith reads the model in its other formats.",
}
_BOTH = "It also loads in `transformers`, and in `sentence-transformers` with the same vectors."
_PROGRAMS = "`bertsmith.json` has the same information in machine-readable form, with digests of the model's files."
_CHOSEN = ", which were also used to choose the best evaluation, and {}; on others it may do worse."
_AGAIN = " that were held out; the model was then trained again, on these as well, and was not scored since."
_SESSION = """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
print([one.name for one in session.get_inputs()], [one.name for one in session.get_outputs()])
"""
# For a head that reads hidden states; names in braces are replaced.
_ENCODER = """import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, encoder = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".").float().eval()
inputs = tokenizer({texts}, padding=True, truncation=True, max_length={longest}, return_tensors="pt"{more})
{segments}with torch.inference_mode():
    hidden = encoder(**inputs).last_hidden_state
{vectors}
layer = load_file("model.safetensors")
{blocks}logits = vectors @ layer["classifier.weight"].T + layer["classifier.bias"]
"""
_BLOCKS = """for name, then in (("norm", "hidden"), ("hidden_norm", None)):
    weight, bias = layer[f"blocks.{name}.weight"], layer[f"blocks.{name}.bias"]
    vectors = torch.nn.functional.layer_norm(vectors, weight.shape, weight, bias)
    if then:
        vectors = (vectors @ layer[f"blocks.{then}.weight"].T + layer[f"blocks.{then}.bias"]).relu()
"""
_VECTORS = {
    "cls": "vectors = hidden[:, 0]",
    "mean": 'mask = inputs["attention_mask"].unsqueeze(-1)\nvectors = (hidden * mask).sum(1) / mask.sum(1)',
    CONCAT: """mask = inputs["attention_mask"].unsqueeze(-1)
largest = hidden.masked_fill(mask == 0, float("-inf")).amax(1)
vectors = torch.cat([hidden[:, 0], largest, (hidden * mask).sum(1) / mask.sum(1)], dim=-1)""",
    PAIR: """mask = inputs["attention_mask"]
weights = [part.unsqueeze(-1) for part in (mask * (1 - segments), mask * segments)]
a, b = [(hidden * part).sum(1) / part.sum(1) for part in weights]
vectors = torch.cat([a, b, (a - b).abs(), a * b], dim=-1)""",
}
# For a head that compares texts that the encoder reads one by one.
_ENCODER_APART = """import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

tokenizer, encoder = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".").float().eval()


def mean(texts):  # both texts of a pair have at most {longest} tokens together
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = encoder(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    return (hidden * mask).sum(1) / mask.sum(1)


a, b = mean(["A text."]), mean(["Another text."])
vectors = torch.cat([a, b, (a - b).abs(), a * b], dim=-1)
layer = load_file("model.safetensors")
logits = vectors @ layer["classifier.weight"].T + layer["classifier.bias"]
"""
_TWO_TEXTS = (
    "Its head reads two texts; `token_type_ids` is 0 for the tokens of the first and 1 for those of the second."
)
_READS = {
    "cls": "the last hidden state of `[CLS]`, without the pooler",
    "mean": "the mean of the last hidden states over all tokens",
    CONCAT: "the last hidden state of the position that represents a text, the maximum and the mean over all tokens, "
    "through a hidden layer",
    PAIR: "the means a and b of the last hidden states of both texts, |a - b| and a * b",
    APART: "the means a and b of the last hidden states of both texts, each encoded by itself, |a - b| and a * b",
}
_UNKNOWN = "## What this card does not know"
_CODE = re.compile(r"[a-z]{2,3}")  # of a language, as the hub writes it
_MOST_SOURCES = 20
_SHOWN_ELSEWHERE = ("collapsed", "trainings", "total_steps", "total_tokens")  # under scores and costs
_LICENCE = "license:"
_WRITTEN = ("library_name", "pipeline_tag", "tags")  # keys of the header that depend on the format and the task

_PIPELINES = {  # by the hub's names
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
    "similarity": "sentence-similarity",
}
# An input line for `bertsmith predict`, and the equivalent call of the library; a classifier may read pairs.
_LINES = {
    "classification": "A text.",
    "regression": "A text.",
    "tagging": "A text.",
    "span": "A question?\\tA text that answers it.",
    "choice": "A beginning\\tan end\\tanother end",
    "similarity": "A text.",
}
_CALLS = {
    "classification": 'classify(["A text."])',
    "regression": 'score(["A text."])',
    "tagging": 'tag(["A text."])',
    "span": 'answer([("A question?", "A text that answers it.")])',
    "choice": 'choose([("A beginning", ["an end", "another end"])])',
    "similarity": 'embed(["One text.", "Another text."])',
}


def write_card(
    folder: Path,
    config: EncoderConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata,
    library: str,
) -> None:
    """Writes the card of a model next to its files, as Markdown with the header that the hub reads.

    Args:
        tensors: parameters by our name, those of the encoder prefixed with `bert.`.
        metadata: the metadata of the model.
        library: the library besides bertsmith that reads these files, one of `LIBRARIES`; that of an architecture which
            `transformers` lacks is bertsmith itself.
    """
    if library == "transformers" and metadata.task == SIMILARITY and (config.in_transformers or config.is_static):
        library = "sentence-transformers"
    if library == "transformers" and not config.in_transformers:
        library = "bertsmith"
    paragraphs = (
        _header(config, tensors, metadata, library),
        f"# {_title(config, tensors, metadata)}",
        _what(config, tensors, tokenizer, metadata),
        *_scores(metadata),
        *_training(metadata),
        *_cost(metadata),
        _use(config, tensors, metadata, library),
        f"{_UNKNOWN}\n\n"
        f"{'The' if metadata.licence else 'The licence, the'} language, what the model should and should not be used "
        "for, and who would be harmed by its mistakes: add them here before you share it. A model reproduces its "
        "training texts, including their biases.",
    )
    write_text(folder / CARD, "\n\n".join(paragraphs) + "\n")


def with_additions(card: str, older: str) -> str | None:
    """A card with the additions people made to an older card of the same model; None if bertsmith did not write that.

    People add text below the last heading, and keys to the header, such as the licence.
    """
    header, text = _parts(older)
    _, found, added = text.partition(_UNKNOWN)
    if not found:
        return None
    new_header, new_text = _parts(card)
    if any(line.startswith(_LICENCE) for line in header):  # which they may have changed
        new_header = [line for line in new_header if not line.startswith(_LICENCE)]
    lines, keep = [], False
    written = {*_WRITTEN, *(line.split(":")[0] for line in new_header)}
    for line in header:
        # An indented line or a list item belongs to the key above it.
        if not line.startswith((" ", "-")):
            keep = line.split(":")[0] not in written
        lines += [line] if keep else []
    return "\n".join(("---", *new_header, *lines, "---")) + new_text.partition(_UNKNOWN)[0] + _UNKNOWN + added


def _parts(card: str) -> tuple[list[str], str]:
    """The lines of the header, and the text below it."""
    if not card.startswith("---\n") or "\n---" not in card[4:]:
        return [], card
    header, text = card[4:].split("\n---", 1)
    return header.split("\n"), text


def _header(config: EncoderConfig, tensors: Mapping[str, Tensor], metadata: ModelMetadata, library: str) -> str:
    pipeline = _PIPELINES.get(metadata.task or "")
    if pipeline is None:
        pipeline = "fill-mask" if _fills(config, tensors) else "feature-extraction"
        if _continues(config, tensors) and config.always_causal:
            pipeline = "text-generation"
    languages = metadata.training.get("languages")
    codes = [name for name in languages if _CODE.fullmatch(name)] if isinstance(languages, Mapping) else []
    listed = "".join(f"\n- {code}" for code in codes)
    language = f"\nlanguage:{listed}" if codes else ""
    licence = "" if metadata.licence is None else f"license: {json.dumps(metadata.licence)}\n"
    tags = f"\ntags:\n- {config.model_type}\n- bertsmith"
    return f"---\n{licence}library_name: {library}\npipeline_tag: {pipeline}{language}{tags}\n---"


def _title(config: EncoderConfig, tensors: Mapping[str, Tensor], metadata: ModelMetadata) -> str:
    kind, name = metadata.task or "", str((metadata.spec or {}).get("name", ""))
    model = config.display_name
    if kind in _PIPELINES:
        return f"{model} for {kind}" + (f": {name}" if name and name != kind else "")
    return f"{model}, pre-trained" if "mlm" in parts_of(tensors, config) else f"{model}, an encoder"


def _what(
    config: EncoderConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer | None, metadata: ModelMetadata
) -> str:
    count = sum(tensor.numel() for tensor in tensors.values())
    lines = [f"- Encoder: {config.shape_in_words}; {count:,} parameters in total."]
    if tokenizer is not None:
        kept = "lower-cased" if tokenizer.rules.lowercase else "case-sensitive"
        lines.append(f"- Text: {kept}, with a vocabulary of {len(tokenizer.vocabulary):,} {tokenizer.kind}.")
    lines.append(f"- {_reads(config, metadata)}")
    if config.is_causal:
        way, seen = ("right to left", "after") if config.reads_backward else ("left to right", "before")
        lines.append(f"- Direction: {way}; each token sees only itself and those {seen} it.")
    if config.two_directions:
        lines.append("- Direction: two language models, one from left to right and one from right to left.")
    if metadata.labels:
        lines.append(f"- Labels: {', '.join(f'`{label}`' for label in metadata.labels)}.")
    return "\n".join(lines)


def _reads(config: EncoderConfig, metadata: ModelMetadata) -> str:
    settings = (metadata.spec or {}).get("settings") or {}
    longest = min(int(settings.get("max_length", config.max_tokens)), config.max_tokens)
    reads = f"Reads up to {longest} tokens at once, special tokens included"
    if longest == config.max_tokens and "max_position_embeddings" in config.omitted:
        return "Reads texts of any length."
    policy = settings.get("long_text")
    if policy in ("hierarchical", "hierarchical-bilstm"):
        return f"{reads}; longer texts in windows, whose vectors a layer of its own reads together ({policy})."
    if metadata.task in ("span", "tagging") or policy == "windows":
        return f"{reads}; longer texts in windows."
    return f"{reads}; longer texts are truncated ({policy})." if policy else f"{reads}."


def _scores(metadata: ModelMetadata) -> Iterator[str]:
    scores = {name: value for name, value in metadata.scores.items() if isinstance(value, int | float)}
    if not scores:
        return
    table = "\n".join(("| score | value |", "|---|---|", *(f"| {one} | {scores[one]:.4f} |" for one in scores)))
    if metadata.task == "pretraining":
        note = "On held-out documents of the corpus; losses and entropies in nats."
    else:
        count = metadata.training.get("dev_examples")
        note = f"On {f'{count:,} ' if isinstance(count, int) else ''}labelled examples"
        chosen = _CHOSEN.format("seeds or their average" if "average_of" in metadata.training else "the best seed")
        note += _AGAIN if metadata.training.get("trained_on_dev") else chosen
        note += f" **{weakness[0].upper()}{weakness[1:]}.**" if (weakness := weakness_of(metadata)) else ""
    yield f"## Scores\n\n{table}\n\n{note}"


def _training(metadata: ModelMetadata) -> Iterator[str]:
    shown = {name: value for name, value in metadata.training.items() if name not in _SHOWN_ELSEWHERE}
    known = [f"- {name.replace('_', ' ')}: {_plain(value)}" for name, value in shown.items()]
    if metadata.spec is None:  # those of a fine-tuned model are in the table of costs
        pretraining = (("steps", metadata.steps), ("tokens", metadata.tokens))
        known += [f"- {name}: {count:,}" for name, count in pretraining if isinstance(count, int)]
    known += [f"- objective: {metadata.objective}"] if metadata.objective else []
    known += [f"- {name.replace('_', ' ')}: `{value}`" for name, value in metadata.trained_on.items()]
    if known:
        yield "## Training\n\n" + "\n".join(known)
    if metadata.sources:
        more = len(metadata.sources) - _MOST_SOURCES
        rest = [f"- and {more:,} more files, all of them in `{METADATA}`"] if more > 0 else []
        yield "## Text\n\n" + "\n".join([*(f"- {one}" for one in metadata.sources[:_MOST_SOURCES]), *rest])


def _cost(metadata: ModelMetadata) -> Iterator[str]:
    """The costs of pre-training and fine-tuning; nothing where the cost of fine-tuning is not known.

    In steps and tokens, which depend on the data and the settings alone; seconds are in the report of the run.
    """
    training = metadata.training
    steps, tokens = (training.get(f"total_{name}", training.get(name)) for name in ("steps", "tokens"))
    if metadata.spec is None or not isinstance(steps, int) or not isinstance(tokens, int):
        return
    stage = f"fine-tuning, {training['trainings']} trainings" if "trainings" in training else "fine-tuning"
    counts = [f"{n:,}" if isinstance(n, int) else "not recorded" for n in (metadata.steps, metadata.tokens)]
    text = "## Cost\n\n| | steps | tokens |\n|---|---|---|\n"
    text += f"| pre-training | {counts[0]} | {counts[1]} |\n| {stage} | {steps:,} | {tokens:,} |"
    if isinstance(metadata.tokens, int) and metadata.tokens:
        text += f"\n\nFine-tuning read {tokens / metadata.tokens:.3g} times as many tokens as pre-training."
    yield text


def _use(config: EncoderConfig, tensors: Mapping[str, Tensor], metadata: ModelMetadata, library: str) -> str:
    if library == "onnx":
        about = f"{_TWO_TEXTS} {LIBRARIES[library]}" if metadata.vectors_of_row > 1 else LIBRARIES[library]
        return f"## Use\n\n```python\n{_SESSION}```\n\n{about} {_PROGRAMS}"
    kind, load, imports = metadata.task or "", 'bertsmith.load(".")', "import bertsmith"
    if kind in _LINES:
        line, call = _LINES[kind], _CALLS[kind]
        if (metadata.spec or {}).get("pair"):
            line, call = line + "\\tAnother text.", call.replace('"A text."', '("A text.", "Another text.")')
        command = f'printf "{line}\\n" | bertsmith predict --model .'
        if _has(tensors, OWN_HEAD):
            name = metadata.own_head or "MyHead"
            command += f" --head my_head.py:{name}"
            load = f'bertsmith.load(".", head={name})'
            imports += f"\nfrom my_head import {name}  # the class that this model was fine-tuned with"
    elif _continues(config, tensors):
        command, call = 'bertsmith complete --model . "A text that"', 'complete(["A text that"])'
    elif _fills(config, tensors):
        command, call = 'bertsmith fill --model . "A [MASK] ."', 'fill(["A [MASK] ."])'
    else:
        command, call = "bertsmith embed texts.txt --model . --out vectors.npy", 'embed(["A text."])'
    return (
        f"## Use\n\n```console\n$ {command}\n```\n\n"
        f"```python\n{imports}\n\nmodel = {load}\nprint(model.{call})\n```\n\n"
        + _joined(_other_library(config, tensors, metadata, library), _PROGRAMS)
    )


def _fills(config: EncoderConfig, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the model fills masks; the same head of a left-to-right model predicts the next piece."""
    return _has(tensors, "mlm") and not (config.is_causal or config.two_directions)


def _continues(config: EncoderConfig, tensors: Mapping[str, Tensor]) -> bool:
    """Whether the model continues texts; one that reads from right to left predicts the piece before."""
    return config.is_causal and not config.reads_backward and "mlm" in parts_of(tensors, config)


def _joined(first: str, second: str) -> str:
    """Two texts, one after the other: in one paragraph unless the first ends with one."""
    return first + ("" if first.endswith("\n") else " ") + second


def _other_library(config: EncoderConfig, tensors: Mapping[str, Tensor], metadata: ModelMetadata, library: str) -> str:
    """What the other library does with the files."""
    reads = metadata.reads
    if library == "transformers" and reads in READERS:
        return "The encoder loads in `transformers`, which has no head with a BiLSTM."
    if library == "transformers" and _has(tensors, READER):
        return "The encoder loads in `transformers`, which has no head over the windows of a text."
    whole_rows = metadata.task in WHOLE_ROWS and reads in _READS
    if library == "transformers" and whole_rows and _has(tensors, "classifier"):
        if config.is_causal and reads in ("cls", CONCAT):
            more = "" if reads == "cls" else ", and the maximum and the mean over all tokens, through a hidden layer"
            return f"The encoder loads in `transformers`; the head reads its last hidden state of the last token{more}."
        longest = int(((metadata.spec or {}).get("settings") or {}).get("max_length", config.max_tokens))
        code = _encoder_code(config, reads, min(longest, config.max_tokens))
        return (
            f"The encoder loads in `transformers`, which has no such head: this one reads {_READS[reads]}. It is "
            f"applied like this:\n\n```python\n{code}```\n\n"
        )
    if library == "transformers" and config.is_causal and _has(tensors, "classifier") and _has(tensors, "pooler"):
        return (
            "It does not load in `transformers` with the same answers: the model reads from left to right, so its head "
            "reads the last token of a text, where `transformers` reads the first."
        )
    return _BOTH if library == "transformers" and metadata.gives_vectors else LIBRARIES[library]


def _encoder_code(config: EncoderConfig, reads: str, longest: int) -> str:
    """The lines that apply a head of hidden states to an encoder in `transformers`."""
    if reads == APART:
        return _ENCODER_APART.format(longest=longest)
    texts, more, segments = '["A text."]', "", ""
    if reads == PAIR:
        texts, segments = '["A text."], ["Another text."]', 'segments = inputs["token_type_ids"]\n'
        if config.type_vocab_size < 2:  # the encoder does not accept segment ids
            more, segments = ", return_token_type_ids=True", 'segments = inputs.pop("token_type_ids")\n'
    blocks = _BLOCKS if reads == CONCAT else ""
    return _ENCODER.format(
        vectors=_VECTORS[reads], longest=longest, texts=texts, more=more, segments=segments, blocks=blocks
    )


def _has(tensors: Mapping[str, Tensor], part: str) -> bool:
    return any(part_of(name) == part for name in tensors)


def _plain(value: object) -> str:
    if isinstance(value, Mapping) and all(isinstance(share, int | float) for share in value.values()):
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
