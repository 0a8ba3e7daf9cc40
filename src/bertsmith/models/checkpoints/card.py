"""The model card, `README.md` of a model folder: what the model is, its training data, its scores, how to use it.

Every line comes from the model and its metadata, so a folder explains itself wherever it is copied. What a program
cannot know (licence, language, intended use) is left to the person who publishes the model, and the card says so.

Source: Mitchell et al. (2019), "Model Cards for Model Reporting", for the content of a card; for the header,
huggingface.co/docs/hub/model-cards.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bertsmith.base.core.progress import counted
from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.model_folder import parts_of
from bertsmith.models.checkpoints.transformers_folder import EXACT, Opening, longest_of
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.models.heads.vector_forms import form_of
from bertsmith.models.model_files.metadata import (
    BEST_EVALUATION,
    CARD,
    CODE,
    METADATA,
    SIMILARITY,
    WHOLE_ROWS,
    ModelMetadata,
)
from bertsmith.models.model_files.weakness import weakness_of
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.part_names import DECODER, OWN_HEAD, part_of
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

LIBRARIES = {  # by the hub's names
    "sentence-transformers": "It also loads in `sentence-transformers`, with the same vectors.",
    "transformers": "It also loads in `transformers`, with the same numbers.",
    "tf": "Google's BERT code for TensorFlow can read it too.",
    "bertsmith": "No other library reads it.",
    "onnx": "Token ids come from the vocabulary next to it; bertsmith reads the model in its other formats.",
}
_BOTH = "It also loads in `transformers`, and in `sentence-transformers` with the same vectors."
_PROGRAMS = "`bertsmith.json` has the same information in machine-readable form, with digests of the model's files."
_CHOSEN = ", which were also used to choose {}; on others it may do worse."
_FOLDS = ", each by a model trained without it (cross-validation); this model was trained on all, and was not scored."
_AGAIN = " that were held out; the model was then trained again, on these as well, and was not scored since."
_SESSION = """import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
print([one.name for one in session.get_inputs()], [one.name for one in session.get_outputs()])
"""
# What opens the head of a task in `transformers`, by what follows "AutoModelFor"; names in braces are replaced.
_PIPELINE = """from transformers import pipeline

model = pipeline("{pipeline}", "."{trust}, {options})
print(model({inputs}))
"""
_MODEL = """import torch
from transformers import AutoModelFor{task}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("."{trust})
model = AutoModelFor{task}.from_pretrained("."{trust}).eval()
inputs = tokenizer({inputs}, padding=True, return_tensors="pt")
with torch.inference_mode():
    output = model(**{batch})
print({output})
"""
_OPTIONS = {
    "SequenceClassification": "truncation=True, top_k=None",
    "TokenClassification": 'aggregation_strategy="first"',
}
_INPUTS = {
    "SequenceClassification": '"A text."',
    "TokenClassification": '"A text ."',
    "QuestionAnswering": '"A question?", "A text that answers it."',
    "MultipleChoice": '["A beginning"] * 2, ["an end", "another end"]',
}
_PAIR_OF_TEXTS = '{"text": "A text.", "text_pair": "Another text."}'
_TWO_TEXTS = (
    "Its head reads two texts; `token_type_ids` is 0 for the tokens of the first and 1 for those of the second."
)
_UNKNOWN = "## What this card does not know"
_CODE = re.compile(r"[a-z]{2,3}")  # of a language, as the hub writes it
_MOST_SOURCES = 20
_TEXTS = {"tokens": "{:,.1f} tokens on average", "unknown": "{:.1%} of the pieces unknown", "cut": "{:.1%} truncated"}
_SHOWN_ELSEWHERE = ("collapsed", "trainings", "total_steps", "total_tokens")  # under scores and costs
_LICENCE = "license:"
_WRITTEN = ("library_name", "pipeline_tag", "tags")  # keys of the header that depend on the format and the task

# What a model does, in its title, by the name of its task, if its kind does not say it.
_NAMED = {
    "ner": "named entity recognition",
    "pos": "part-of-speech tagging",
    "multi-label": "multi-label text classification",
    "relations": "relation classification",
    "summarization": "summarization",
    "response": "replies",
    "response-selection": "choosing replies",
    "translation": "translation",
    "parsing": "trees of constituents",
    "text-to-text": "writing texts",
}
_OF_KIND = (
    "classification",
    "regression",
    RERANKING,
    "choice",
    "similarity",
    "pairs",
    "triplets",
    "texts",
)  # would only repeat it


class _Kind(NamedTuple):
    """A kind of task.

    Attributes:
        pipeline: the hub's name.
        line: an input of `bertsmith predict`.
        call: of the library.
        longer: what happens to texts that are too long for a row; "" where that depends on `long_text`.
    """

    pipeline: str
    title: str
    line: str
    call: str
    longer: str = ""


_IN_WINDOWS = "longer texts in windows"
_KINDS = {
    "classification": _Kind("text-classification", "text classification", "A text.", 'classify(["A text."])'),
    "regression": _Kind("text-classification", "scoring texts", "A text.", 'score(["A text."])'),
    RERANKING: _Kind("text-classification", "reranking", "A query", 'rerank("A query", ["A passage."])'),
    "tagging": _Kind("token-classification", "tagging words", "A text.", 'tag(["A text."])', _IN_WINDOWS),
    "span": _Kind(
        "question-answering",
        "question answering",
        "A question?\\tA text that answers it.",
        'answer([("A question?", "A text that answers it.")])',
        _IN_WINDOWS,
    ),
    "choice": _Kind(
        "multiple-choice",
        "multiple choice",
        "A beginning\\tan end\\tanother end",
        'choose([("A beginning", ["an end", "another end"])])',
    ),
    "selection": _Kind(
        "sentence-similarity",
        "choosing replies",
        "A text.\\tA reply.\\tAnother reply.",
        'choose([("A text.", ["A reply.", "Another reply."])])',
    ),
    "generation": _Kind("text2text-generation", "writing texts", "A text.", 'generate(["A text."])'),
    "extraction": _Kind(
        "summarization", "extractive summaries", "A text. It has sentences.", 'extract(["A text."])', _IN_WINDOWS
    ),
    "coreference": _Kind(
        "token-classification",
        "coreference of pronouns",
        '{"text": "Anna saw that she had won.", "pronoun": [14, 17], "candidates": [[0, 4]]}',
        'resolve([{"text": "Anna saw that she had won.", "pronoun": (14, 17), "candidates": [(0, 4)]}])',
        "of longer texts the part around the mentions",
    ),
    "entities-by-name": _Kind(
        "token-classification",
        "named entity recognition for labels that are only named",
        "A text.",
        'tag(["A text."], labels=["person", "place"])',
        _IN_WINDOWS,
    ),
    "entities": _Kind(
        "token-classification", "nested named entity recognition", "A text.", 'tag(["A text."])', _IN_WINDOWS
    ),
    "similarity": _Kind(
        "sentence-similarity", "sentence similarity", "A text.", 'embed(["One text.", "Another text."])'
    ),
}


def write_card(
    folder: Path,
    config: EncoderConfig,
    tensors: "Mapping[str, Tensor]",
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata,
    library: str,
    opening: Opening,
) -> None:
    """Writes the card of a model next to its files, as Markdown with the header that the hub reads.

    Args:
        library: the library besides bertsmith that reads these files, one of `LIBRARIES`; bertsmith itself for a model
            that `transformers` cannot compute.
    """
    if library == "transformers" and metadata.task == SIMILARITY and (config.in_transformers or config.is_static):
        library = "sentence-transformers"
    if library == "transformers" and opening.only_here:
        library = "bertsmith"
    paragraphs = (
        _header(config, tensors, metadata, library, opening),
        f"# {_title(config, tensors, metadata)}",
        _use(config, tensors, tokenizer, metadata, library, opening),
        _what(config, tensors, tokenizer, metadata),
        *_scores(metadata),
        *_training(metadata),
        *_cost(metadata),
        _to_be_added(metadata),
    )
    write_text(folder / CARD, "\n\n".join(paragraphs) + "\n")


def card_of_words(metadata: ModelMetadata, about: Sequence[str]) -> str:
    """The card of a model on words, which has no encoder, as Markdown with the header that the hub reads.

    Args:
        about: what it reads and what it computes from that, a line each.
    """
    kind = _KINDS[metadata.task or ""]
    name = str((metadata.spec or {}).get("name", ""))
    title = _NAMED.get(name) or kind.title + ("" if name in ("", *_OF_KIND) else f", trained on the task {name}")
    labels = [f"Labels: {', '.join(f'`{label}`' for label in metadata.labels)}."] if metadata.labels else []
    paragraphs = (
        f"---\nlibrary_name: bertsmith\npipeline_tag: {kind.pipeline}\ntags:\n- bertsmith\n---",
        f"# A model on words for {title}",
        f"## Use\n\nbertsmith opens this folder, and needs no torch for that. {LIBRARIES['bertsmith']} {_PROGRAMS}",
        *_commands(metadata),
        "\n".join(f"- {line}" for line in (*about, *labels)),
        *_scores(metadata),
        *_training(metadata),
        _to_be_added(metadata),
    )
    return "\n\n".join(paragraphs) + "\n"


def with_additions(card: str, older: str) -> str | None:
    """A card with the additions people made to an older card of the same model; None if bertsmith did not write that.

    People add text below the last heading, and keys to the header, such as the licence.
    """
    header, text = _parts(older)
    _, heading, added = text.partition(_UNKNOWN)
    if not heading:
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


def _header(
    config: EncoderConfig, tensors: "Mapping[str, Tensor]", metadata: ModelMetadata, library: str, opening: Opening
) -> str:
    if metadata.task in _KINDS:
        pipeline = _KINDS[metadata.task].pipeline
    else:
        pipeline = "fill-mask" if _fills(config, tensors) else "feature-extraction"
        if _continues(config, tensors) and config.always_causal:
            pipeline = "text-generation"
    languages = metadata.training.get("languages")
    codes = [name for name in languages if _CODE.fullmatch(name)] if isinstance(languages, Mapping) else []
    listed = "".join(f"\n- {code}" for code in codes)
    language = f"\nlanguage:{listed}" if codes else ""
    licence = "" if metadata.licence is None else f"license: {json.dumps(metadata.licence)}\n"
    tags = f"\ntags:\n- {config.model_type}\n- bertsmith"
    tags += "\n- custom_code" if opening.needs_code and library == "transformers" else ""
    named = "" if library == "bertsmith" and config.in_transformers else f"\npipeline_tag: {pipeline}"
    return f"---\n{licence}library_name: {library}{named}{language}{tags}\n---"


def _title(config: EncoderConfig, tensors: "Mapping[str, Tensor]", metadata: ModelMetadata) -> str:
    kind, name = metadata.task or "", str((metadata.spec or {}).get("name", ""))
    model = config.display_name
    if kind in _KINDS:
        if name in _NAMED:
            return f"{model} for {_NAMED[name]}"
        return f"{model} for {_KINDS[kind].title}" + (
            "" if name in ("", *_OF_KIND) else f", fine-tuned on the task {name}"
        )
    return f"{model}, pre-trained" if "mlm" in parts_of(tensors, config) else f"{model}, an encoder"


def _what(
    config: EncoderConfig, tensors: "Mapping[str, Tensor]", tokenizer: Tokenizer | None, metadata: ModelMetadata
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
    if layers := len({name.split(".")[2] for name in tensors if name.startswith(f"{DECODER}.layers.")}):
        longest = (metadata.spec or {}).get("settings", {}).get("max_target_length")
        lines.append(f"- Decoder: {counted(layers, 'layer')}; writes up to {longest} pieces.")
    if metadata.labels:
        lines.append(f"- Labels: {', '.join(f'`{label}`' for label in metadata.labels)}.")
    return "\n".join(lines)


def _reads(config: EncoderConfig, metadata: ModelMetadata) -> str:
    settings = (metadata.spec or {}).get("settings") or {}
    longest = longest_of(config, metadata)
    reads = f"Reads up to {longest} tokens at once, special tokens included"
    if longest == config.max_tokens and "max_position_embeddings" in config.omitted:
        return "Reads texts of any length."
    policy = settings.get("long_text")
    if policy in ("hierarchical", "hierarchical-bilstm"):
        return f"{reads}; longer texts in windows, whose vectors a layer of its own reads together ({policy})."
    if policy == "error" and metadata.task != "span":
        return f"{reads}; longer texts are refused."
    kind = _KINDS.get(metadata.task or "")
    longer = _IN_WINDOWS if policy == "windows" else kind.longer if kind else ""
    if longer:
        return f"{reads}; {longer}."
    return f"{reads}; longer texts are truncated ({policy})." if policy else f"{reads}."


def _scores(metadata: ModelMetadata) -> Iterator[str]:
    scores = {name: value for name, value in metadata.scores.items() if isinstance(value, int | float)}
    if not scores:
        return
    table = "\n".join(("| score | value |", "|---|---|", *(f"| {name} | {scores[name]:.4f} |" for name in scores)))
    if metadata.task == "pretraining":
        note = "On held-out documents of the corpus; losses and entropies in nats."
    else:
        count = metadata.training.get("dev_examples")
        note = f"On {f'{count:,} ' if isinstance(count, int) else ''}labelled examples"
        training = metadata.training
        # Older models do not say what was kept.
        by_step = training.get("kept") == BEST_EVALUATION or training.get("best_step") != training.get("steps")
        chosen = [BEST_EVALUATION] if by_step else []
        if "average_of" in training or "trainings" in training:
            chosen += ["between the seeds and their average" if "average_of" in training else "the best seed"]
        chosen = ["between the trainings and their linear start"] if "not_kept" in training else chosen
        note += (
            _FOLDS
            if "folds" in training
            else _AGAIN
            if training.get("trained_on_dev")
            else _CHOSEN.format(" and ".join(chosen))
            if chosen
            else "."
        )
        note += f" **{weakness[0].upper()}{weakness[1:]}.**" if (weakness := weakness_of(metadata)) else ""
    yield f"## Scores\n\n{table}\n\n{note}"


def _training(metadata: ModelMetadata) -> Iterator[str]:
    shown = {name: value for name, value in metadata.training.items() if name not in _SHOWN_ELSEWHERE}
    known = [
        f"- {name.replace('_', ' ')}: {(_texts if name == 'texts' else _plain)(value)}" for name, value in shown.items()
    ]
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
        yield "## Text\n\n" + "\n".join([*(f"- {source}" for source in metadata.sources[:_MOST_SOURCES]), *rest])


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
        more, fewer = ("Fine-tuning", "pre-training") if tokens > metadata.tokens else ("Pre-training", "fine-tuning")
        ratio = max(tokens, metadata.tokens) / max(min(tokens, metadata.tokens), 1)
        times = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.3g}"
        text += f"\n\n{more} read {times} times as many tokens as {fewer}."
    yield text


def _use(
    config: EncoderConfig,
    tensors: "Mapping[str, Tensor]",
    tokenizer: Tokenizer | None,
    metadata: ModelMetadata,
    library: str,
    opening: Opening,
) -> str:
    if library == "onnx":
        about = ""
        if opening.in_onnx not in ("", EXACT):
            about = f"A session {opening.in_onnx}; bertsmith answers with {opening.only_here}. "
        about += f"{_TWO_TEXTS} {LIBRARIES[library]}" if metadata.vectors_of_row > 1 else LIBRARIES[library]
        return f"## Use\n\n```python\n{_SESSION}```\n\n{about} {_PROGRAMS}"
    if metadata.task in _KINDS:
        own_head = OWN_HEAD in parts_of(tensors, config)
        examples = _commands(metadata, head=(metadata.own_head or "MyHead") if own_head else "")
    elif _continues(config, tensors):
        examples = _console('bertsmith complete --model . "A text that"'), _session('complete(["A text that"])')
    elif _fills(config, tensors):
        examples = _console('bertsmith fill --model . "A [MASK] ."'), _session('fill(["A [MASK] ."])')
    else:
        command = "bertsmith embed texts.txt --model . --out vectors.npy"
        examples = _console(command), _session('embed(["A text."])')
    there = _other_library(opening, config, tokenizer, metadata) if opening.task and library == "transformers" else ()
    paragraphs = (
        f"## Use\n\nbertsmith opens this folder. {_opens(opening, config, metadata, library)} {_PROGRAMS}",
        *examples,
        *there,
    )
    return "\n\n".join(paragraphs)


def _commands(metadata: ModelMetadata, head: str = "") -> tuple[str, str]:
    """How a model of a task is used from the command line and in Python.

    Args:
        head: the name of the user's class of its head; "" if there is none.
    """
    if form_of(metadata.spec).of_tokens:
        command = 'bertsmith search texts.txt --model . --query "A query."'
        return _console(command), _session('rerank("A query.", ["One text.", "Another text."])')
    kind, load, imports = _KINDS[metadata.task or ""], 'bertsmith.load(".")', "import bertsmith"
    line, call = kind.line, kind.call
    if (metadata.spec or {}).get("pair"):
        line, call = line + "\\tAnother text.", call.replace('"A text."', '("A text.", "Another text.")')
    quote = "'" if '"' in line else '"'
    command = f"printf {quote}{line}\\n{quote} | bertsmith predict --model ."
    if metadata.task == "entities-by-name":
        command += " --labels person,place"
    if head:
        command += f" --head my_head.py:{head}"
        load = f'bertsmith.load(".", head={head})'
        imports += f"\nfrom my_head import {head}  # the class that this model was fine-tuned with"
    return _console(command), _session(call, load, imports)


def _console(command: str) -> str:
    return f"```console\n$ {command}\n```"


def _session(call: str, load: str = 'bertsmith.load(".")', imports: str = "import bertsmith") -> str:
    return f"```python\n{imports}\n\nmodel = {load}\nprint(model.{call})\n```"


def _to_be_added(metadata: ModelMetadata) -> str:
    """What a program does not know, for the person who publishes the model."""
    return (
        f"{_UNKNOWN}\n\n"
        f"{'The' if metadata.licence else 'The licence, the'} language, what the model should and should not be used "
        "for, and who would be harmed by its mistakes: add them here before you share it. A model reproduces its "
        "training texts, including their biases."
    )


def _fills(config: EncoderConfig, tensors: "Mapping[str, Tensor]") -> bool:
    """Whether the model fills masks; the same head of a left-to-right model predicts the next piece."""
    return any(part_of(name) == "mlm" for name in tensors) and not (config.is_causal or config.two_directions)


def _continues(config: EncoderConfig, tensors: "Mapping[str, Tensor]") -> bool:
    """Whether the model continues texts; one that reads from right to left predicts the piece before."""
    return config.is_causal and not config.reads_backward and "mlm" in parts_of(tensors, config)


def _opens(opening: Opening, config: EncoderConfig, metadata: ModelMetadata, library: str) -> str:
    """A sentence on the libraries that open the folder besides bertsmith."""
    if library == "bertsmith" and config.in_transformers:
        return (
            f"It does not load in `transformers`: only bertsmith computes {opening.only_here}. Other libraries refuse "
            f"its `model_type`; {opening.readers}."
        )
    if library == "transformers" and opening.needs_code:
        return (
            "It also loads in `transformers` with `trust_remote_code=True`: that library has no class with this head, "
            f"so it runs `{CODE}` in this folder, which computes it. Otherwise it refuses the folder."
        )
    return _BOTH if library == "transformers" and metadata.gives_vectors else LIBRARIES[library]


def _other_library(
    opening: Opening, config: EncoderConfig, tokenizer: Tokenizer | None, metadata: ModelMetadata
) -> Iterator[str]:
    """The code that runs the head of a task in `transformers`, and what differs there."""
    task, spec = opening.task, metadata.spec or {}
    settings = spec.get("settings") or {}
    trust = ", trust_remote_code=True" if opening.needs_code else ""
    inputs = _PAIR_OF_TEXTS if task == "SequenceClassification" and spec.get("pair") else _INPUTS[task]
    if task in _OPTIONS:
        pipeline = _KINDS[metadata.task or "classification"].pipeline
        code = _PIPELINE.format(pipeline=pipeline, trust=trust, options=_OPTIONS[task], inputs=inputs)
    else:
        is_choice = task == "MultipleChoice"
        batch = "{name: values[None] for name, values in inputs.items()}" if is_choice else "inputs"
        output = "output.logits.softmax(-1)" if is_choice else "output.start_logits, output.end_logits"
        code = _MODEL.format(task=task, trust=trust, inputs=inputs, batch=batch, output=output)
    yield f"In `transformers`:\n\n```python\n{code}```"
    if opening.needs_code and task in _OPTIONS:
        yield "`transformers` may log that it does not know the class of this model; its numbers are the same."
    if task == "TokenClassification":
        yield (
            'Only the first piece of each word was trained, so the strategy is `"first"`; `"simple"` splits words. '
            "bertsmith splits a text at white space and around punctuation, and reads a long one in windows."
        )
        if isinstance(tokenizer, PipelineTokenizer):
            is_byte_level = "ByteLevel" in json.dumps(tokenizer.description.get("pre_tokenizer"))
            spaces = "around punctuation" + (", and one in front of the text" if is_byte_level else "")
            yield f"`pipeline` takes what spaces separate as words: put spaces {spaces}."
        if spec.get("scheme") and settings.get("constrained_tags"):
            yield f"bertsmith predicts only sequences that {spec['scheme']} allows; there, each tag is the most likely."
    if task == "QuestionAnswering":
        yield "bertsmith reads a long text in windows, and takes the best answer inside the text."
    policy = settings.get("long_text", "longest_first")
    if metadata.task in WHOLE_ROWS and policy not in ("longest_first", "head"):
        longest = longest_of(config, metadata)
        yield f"bertsmith treats a text of more than {longest} tokens by `{policy}`; there, its end is cut off."
    temperature = spec.get("temperature", 1.0)
    if temperature != 1 and not opening.needs_code:
        yield f"bertsmith divides the logits by {temperature:g} before the softmax, which calibrates its probabilities."
    if spec.get("threshold") is not None or spec.get("thresholds"):
        yield "What bertsmith predicts depends on thresholds in `bertsmith.json`; probabilities are the same."
    if spec.get("parents"):
        yield "bertsmith predicts a label only together with its parents."


def _texts(value: object) -> str:
    """The mean tokens of the training texts, and the shares of unknown pieces and of truncated texts."""
    if not isinstance(value, Mapping) or not all(isinstance(value.get(name), int | float) for name in _TEXTS):
        return _plain(value)
    return ", ".join(text.format(value[name]) for name, text in _TEXTS.items())


def _plain(value: object) -> str:
    if isinstance(value, Mapping) and all(isinstance(share, int | float) for share in value.values()):
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
