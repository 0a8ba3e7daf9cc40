"""The way to open a model folder in `transformers`: a class of its own, a file of code in the folder, or nothing.

A folder names a class of `transformers` only if that class computes the model exactly. A head that no class has is
computed by `modeling_bertsmith.py`, which is written next to the weights; `transformers` asks for
`trust_remote_code=True` before it runs it. The code is data here: bertsmith writes it, and neither imports nor runs it.
What neither can compute has a `model_type` that no other library knows, so that none takes it for another model.
"""

import dataclasses
import functools
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from bertsmith.base.storage.files import write_text
from bertsmith.models.checkpoints.cross_encoders import class_of_activation
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.models.model_files.metadata import CODE, WHOLE_ROWS, ModelMetadata
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.head_inputs import APART
from bertsmith.models.parts.parameter_names import ParameterNames
from bertsmith.models.parts.part_names import DECODER, OWN_HEAD, READER

# In front of the `model_type` of the encoder, in folders that need the code, and in those that only bertsmith reads.
_WITH_CODE, _ONLY_HERE = "bertsmith-", "bertsmith-only-"
EXACT, OF_ROWS = "is exact", "gives the logits of single rows"
_TASKS = {
    "classification": "SequenceClassification",
    "regression": "SequenceClassification",
    RERANKING: "SequenceClassification",
    "choice": "MultipleChoice",
    "tagging": "TokenClassification",
    "span": "QuestionAnswering",
}
# What of a model of these kinds nothing else computes, and what a session of ONNX Runtime does with it.
ONLY_HERE = {
    "extraction": (
        "a head on the sentences of a text",
        "takes the sentence of each token and the text of each sentence",
    ),
    "entities-by-name": ("scores of spans for the labels of a row", "gives the numbers of single words"),
    "entities": ("scores of spans by their first and last words", "gives the numbers of single words"),
    "coreference": ("scores of pairs of mentions in a text", "gives the numbers of single pieces"),
}
# What `CrossEncoder` applies to the logits; by default a sigmoid to a single one, and nothing to several.
_ACTIVATIONS = {"regression": "linear.Identity", "multi_label_classification": "activation.Sigmoid"}
_OF_NUMBER = ("regression", RERANKING)  # kinds of task with a single output


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """The ways to open a folder.

    Attributes:
        tensors_of: the class of `transformers` whose tensor names the folder has.
        task: what follows "AutoModelFor" in the class that opens it, such as "SequenceClassification"; "" for a model
            without the head of a task.
        needs_code: whether it is computed by the code in the folder.
        only_here: what the model has that nothing else computes; "" if something does.
        in_onnx: what a session of ONNX Runtime does with such a model, such as `EXACT`; "" if it cannot be exported.
    """

    tensors_of: str
    task: str = ""
    needs_code: bool = False
    only_here: str = ""
    in_onnx: str = ""

    @property
    def readers(self) -> str:
        """The readers of a model that `transformers` does not, as advice."""
        return "use it with bertsmith" + (
            f", or convert it with --to onnx, which {self.in_onnx}" if self.in_onnx else ""
        )


def opening_of(
    config: EncoderConfig, names: ParameterNames, parts: Collection[str], metadata: ModelMetadata
) -> Opening:
    """The ways to open a model."""
    tensors_of, declared = class_of(names, parts, metadata.task, metadata.reads), metadata.architecture or ""
    of_others = next((ending for ending in _TASKS.values() if declared.endswith(f"For{ending}")), "")
    task = of_others if metadata.task is None else _TASKS.get(metadata.task, "")
    if DECODER in parts:
        return Opening(tensors_of=tensors_of, only_here="a decoder on the encoder")
    if metadata.task in ONLY_HERE:
        only_here, in_onnx = ONLY_HERE[metadata.task]
        has_graph = (
            config.has_graph and OWN_HEAD not in parts and (READER not in parts or metadata.task == "extraction")
        )
        return Opening(tensors_of=tensors_of, only_here=only_here, in_onnx=in_onnx if has_graph else "")
    has_head = not {"classifier", "span", OWN_HEAD}.isdisjoint(parts)
    if not (task and has_head and config.in_transformers):
        why = "" if config.in_transformers else f"the architecture {config.display_name}, which transformers lacks"
        return Opening(tensors_of=tensors_of, only_here=why)
    why, in_onnx = _only_here(config, parts, metadata)
    reads_pooler = "pooler" in parts and metadata.reads == "pooler"
    if not why and metadata.task == "choice" and reads_pooler and tensors_of == names.class_named("Model"):
        why, in_onnx = f"a choice through the pooler of {config.display_name}", EXACT
    return Opening(
        tensors_of=tensors_of,
        task=task,
        needs_code=not why and tensors_of == names.class_named("Model"),
        only_here=why,
        in_onnx=in_onnx,
    )


def _only_here(config: EncoderConfig, parts: Collection[str], metadata: ModelMetadata) -> tuple[str, str]:
    """The part of a fine-tuned model that only bertsmith computes, and what ONNX Runtime gives of it; else nothing."""
    spec = metadata.spec or {}
    settings = spec.get("settings") or {}
    long_text = settings.get("long_text") or ""
    if OWN_HEAD in parts:
        return f"the user's own head {metadata.own_head or ''}".rstrip(), ""
    if READER in parts:
        over_windows = str(long_text).startswith("hierarchical") and metadata.task in WHOLE_ROWS
        return "a layer over the windows of a text" if over_windows else "a head with a BiLSTM", ""
    if metadata.task not in WHOLE_ROWS:
        return "", ""
    if metadata.reads == APART:
        return "a head that reads the two texts of a row apart", EXACT
    if settings.get("both_orders") and spec.get("pair") is not False:
        return "scores pooled over both orders of a pair", OF_ROWS
    if long_text == "windows":
        return "scores pooled over the windows of a text", OF_ROWS
    if config.is_causal and config.can_pool and metadata.reads == "pooler":
        return "a head on the last token of a row, where transformers reads the first", EXACT
    return "", ""


def class_of(names: ParameterNames, parts: Collection[str], task: str | None, reads: str = "pooler") -> str:
    """The class of `transformers` with these parts; the bare encoder for a head that no class has.

    >>> from bertsmith.models.encoders.bert import NAMES
    >>> class_of(NAMES, ("pooler", "mlm", "nsp"), None), class_of(NAMES, ("pooler", "classifier"), "choice")
    ('BertForPreTraining', 'BertForMultipleChoice')
    >>> class_of(NAMES, ("classifier",), "classification", "mean")
    'BertModel'
    """
    kind = "Model"
    if READER in parts or task in ONLY_HERE or ("classifier" in parts and reads != "pooler" and task in WHOLE_ROWS):
        pass  # the layer is stored as extra tensors
    elif "classifier" in parts:
        by_parts = "classification" if "pooler" in parts else "tagging"
        kind = f"For{_TASKS[task if task in ('tagging', 'choice', *_OF_NUMBER) else by_parts]}"
    elif "span" in parts:
        kind = "ForQuestionAnswering"
    elif "mlm" in parts:
        kind = "ForPreTraining" if "nsp" in parts else "ForMaskedLM"
    elif "nsp" in parts:
        kind = "ForNextSentencePrediction"
    return names.class_named(kind)


def config_json(
    config: EncoderConfig, opening: Opening, metadata: ModelMetadata, stored: str = "float32"
) -> dict[str, Any]:
    """The content of `config.json`; the labels become `id2label`.

    Args:
        stored: the type of the stored numbers, in which other libraries would compute. Answers and vectors that have to
            equal bertsmith's are computed in fp32.
    """
    values = {
        **({"architectures": [opening.tensors_of]} if config.in_transformers else {}),
        "model_type": config.model_type,
        **config.to_dict(),
        "is_decoder": config.is_causal,
        "dtype": "float32" if opening.task or metadata.gives_vectors else stored,
        "tie_word_embeddings": not config.two_directions and config.piece_head != "untied",
    }
    # A single output needs one label, or transformers builds two outputs.
    labels = metadata.labels or (("LABEL_0",) if metadata.task in _OF_NUMBER else ())
    if labels:
        values["id2label"] = {str(number): label for number, label in enumerate(labels)}
        values["label2id"] = {label: number for number, label in enumerate(labels)}
    if metadata.task in _OF_NUMBER:
        values["problem_type"] = "regression"
    elif metadata.task == "classification":
        several = (metadata.spec or {}).get("multi_label")
        values["problem_type"] = "multi_label_classification" if several else "single_label_classification"
    elif metadata.problem_type is not None:
        values["problem_type"] = metadata.problem_type
    if name := class_of_activation(metadata.scoring):
        values["sentence_transformers"] = {"activation_fn": name}
    elif (metadata.spec or {}).get("activation") == "sigmoid":
        values["sentence_transformers"] = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}
    elif activation := _ACTIVATIONS.get(values.get("problem_type", "")):
        values["sentence_transformers"] = {"activation_fn": f"torch.nn.modules.{activation}"}
    return values


def config_of_folder(
    config: EncoderConfig, opening: Opening, metadata: ModelMetadata, stored: str, outputs: int
) -> dict[str, Any]:
    """The content of `config.json` next to weights, with what keeps other libraries from computing another model."""
    values = config_json(config, opening, metadata, stored)
    if opening.only_here and config.in_transformers:
        del values["architectures"]
        return {**values, "model_type": _ONLY_HERE + config.model_type}
    if not opening.needs_code:
        return values
    named = {"AutoConfig": "Config", "AutoModel": "Model", f"AutoModelFor{opening.task}": f"For{opening.task}"}
    return {
        **values,
        "architectures": [f"BertsmithFor{opening.task}"],
        "model_type": _WITH_CODE + config.model_type,
        "auto_map": {auto: f"{Path(CODE).stem}.Bertsmith{end}" for auto, end in named.items()},
        "bertsmith_head": {
            "class": f"BertsmithFor{opening.task}",
            "reads": reads_of(metadata.reads),
            "outputs": outputs,
            "is_causal": config.is_causal,
            "max_length": longest_of(config, metadata),
            "temperature": float((metadata.spec or {}).get("temperature", 1.0)),
        },
    }


def write_code(folder: Path, config: EncoderConfig, names: ParameterNames) -> None:
    """Writes the code that computes the heads of an encoder of this architecture."""
    text = re.sub(r"\bBert(?=Config\b|Model\b)", names.class_prefix, _template())
    write_text(folder / CODE, text.replace('"bertsmith-bert"', f'"{_WITH_CODE}{config.model_type}"'))


def longest_of(config: EncoderConfig, metadata: ModelMetadata) -> int:
    """The maximum number of tokens in a row of a model."""
    settings = (metadata.spec or {}).get("settings") or {}
    return min(int(settings.get("max_length", config.max_tokens)), config.max_tokens)


def reads_of(reads: str) -> str:
    """The input of a head without a class in `transformers`: where the encoder has no pooler, what that would read."""
    return "cls" if reads == "pooler" else reads


def encoder_type(model_type: str) -> str:
    """The `model_type` of the encoder in a folder.

    >>> [encoder_type(name) for name in ("bert", "bertsmith-bert", "bertsmith-only-xlm-roberta")]
    ['bert', 'bert', 'xlm-roberta']
    """
    return model_type.removeprefix(_ONLY_HERE).removeprefix(_WITH_CODE)


@functools.cache
def _template() -> str:
    return Path(__file__).with_name(f"{CODE}.template").read_text(encoding="utf-8")
