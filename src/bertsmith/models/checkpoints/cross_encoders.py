"""How a CrossEncoder of sentence-transformers scores a pair of texts: activation, length, prompt.

Such a folder holds a classifier of `transformers`. Since version 6 that library also writes `modules.json`, as for an
encoder of vectors; before, everything was in `config.json`.

Source: Reimers and Gurevych (2019), "Sentence-BERT", section 2; `CrossEncoder` of sentence-transformers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError
from bertsmith.models.checkpoints.sentence_transformers import (
    ABOUT,
    CROSS_ENCODER,
    MODULES,
    PAIRS_TASK,
    about_of,
    encoder_settings,
    is_cross_encoder,
    lowercases_texts,
    max_length_of,
    modules_of,
    prompts_of,
)

DEFAULT = "default"  # the sigmoid of a single output, and nothing of several
# What is computed from the output, by the name of the class in torch; "": nothing.
_ACTIVATIONS = {"Identity": "", "Sigmoid": "sigmoid", "Softmax": "softmax"}


def read_scoring(folder: Path, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How another tool's folder scores texts, as plain values; None if it is not a classifier of whole texts.

    That is the `activation` ("default" if a CrossEncoder names none; absent if the folder has no CrossEncoder),
    the default `prompt`, all `prompts`, `max_length` in tokens and `lowercase`.
    """
    if not is_cross_encoder(folder):
        recorded, classes = _recorded(values), values.get("architectures")
        if recorded is None and not (
            isinstance(classes, list) and str(classes[:1]).endswith("SequenceClassification']")
        ):
            return None
        activation = {} if recorded is None else {"activation": _activation(recorded, folder / "config.json")}
        return {**activation, "max_length": max_length_of(folder, {})}
    if (folder / MODULES).exists():
        modules = modules_of(folder)
        kinds = [str(module.get("type")) for module in modules]
        if [kind.rsplit(".", 1)[-1] for kind in kinds] != ["Transformer"] or modules[0].get("path"):
            raise CheckpointError(
                expected=f"the Transformer of a {CROSS_ENCODER} alone, in '{folder}' itself",
                found=f"modules {', '.join(kinds)}"[:200],
                fix="use it with sentence-transformers, or name another model",
            )
    said, about = encoder_settings(folder, PAIRS_TASK), about_of(folder)
    prompt, prompts = prompts_of(folder / ABOUT, about)
    name = about.get("activation_fn") or _recorded(values)
    return {
        "activation": DEFAULT if name is None else _activation(name, folder / ABOUT),
        "prompt": prompt,
        "prompts": prompts,
        "max_length": max_length_of(folder, said),
        "lowercase": lowercases_texts(folder, said),
    }


def class_of_activation(scoring: Mapping[str, Any] | None) -> str:
    """The name of the class in torch, for `config.json`; "" for a model that is not a CrossEncoder or names none."""
    recorded = (scoring or {}).get("activation", DEFAULT)
    kind = next((kind for kind, ours in _ACTIVATIONS.items() if ours == recorded), "")
    return f"torch.nn.{kind}" if kind else ""


def _recorded(values: Mapping[str, Any]) -> Any:
    """The activation that `config.json` names: under the names of versions 4 and 5, or of those before."""
    noted = values.get("sentence_transformers")
    if isinstance(noted, dict) and "activation_fn" in noted:
        return noted["activation_fn"]
    return values.get("sbert_ce_default_activation_function")


def _activation(name: Any, path: Path) -> str:
    """Ours for the name of a class of torch, such as "torch.nn.modules.activation.Sigmoid"."""
    kind = str(name).rsplit(".", 1)[-1]
    if not str(name).startswith("torch.") or kind not in _ACTIVATIONS:
        raise CheckpointError(
            expected=f"an activation of torch among {', '.join(_ACTIVATIONS)} in '{path}'",
            found=repr(name)[:100],
            fix="use the model with sentence-transformers, or name one of these",
        )
    return _ACTIVATIONS[kind]
