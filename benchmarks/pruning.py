"""The importance of each attention head of a fine-tuned model, and the model without the least important ones.

The importance of a head is the mean over examples of |dL / dg|, where g = 1 multiplies its output. Since the outputs
of all heads are summed by one matrix, that derivative is the product of the columns of the head with their gradient,
so no gate has to be added to the model. A head is removed by setting its columns to 0: the score is that of the smaller
model, but the file stays as large as it was, because each layer of these architectures has as many heads as the others.

Source: Michel, Levy and Neubig (2019), "Are Sixteen Heads Really Better than One?", sections 4.1 and 4.2.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import require, require_number
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import with_loss
from bertsmith.tasks.task_data.spec_of_model import require_spec

_OUTPUT = "bert.layers.{layer}.attention_output.weight"


def head_importance(folder: ModelFolder, examples: Sequence[Example]) -> npt.NDArray[np.float64]:
    """The importance of each head, float64 [L, A], each layer with a length of 1.

    Args:
        folder: a fine-tuned Transformer.
        examples: labelled examples of its task; a hundred are enough for the order of the heads.
    """
    config = folder.config
    require(
        config.has_attention,
        expected="a model with attention heads",
        found=f"a {config.display_name}",
        fix="name a Transformer",
    )
    task = with_loss(task_for(require_spec(folder)))
    task.check(examples, gold=True, training=True)
    loaded = load_for_task(folder, task.head, keep_head=True)
    features, model = task.encode(examples, loaded.tokenizer, training=True), loaded.model.eval()
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    weights = [model.get_parameter(_OUTPUT.format(layer=layer)) for layer in range(layers)]
    total = torch.zeros(layers, heads, dtype=torch.float64)
    with Progress("importance of heads", total=len(features), unit="examples") as progress:
        for unit in range(len(features)):
            for batch in micro_batches(features, np.array([unit]), micro_tokens=10**9, device="cpu"):
                loss, _ = task.loss(model(batch.batch, read=batch.read), batch)
                gradients = torch.autograd.grad(loss, weights)
                for layer, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
                    by_column = (weight.detach() * gradient).double().sum(0)  # [D], the inputs of the matrix
                    total[layer] += by_column.view(heads, -1).sum(1).abs()
            progress.advance(1)
    importance = total.numpy() / max(1, len(features))
    return np.asarray(importance / np.maximum(np.linalg.norm(importance, axis=1, keepdims=True), 1e-30))


def without_heads(folder: ModelFolder, importance: npt.NDArray[np.float64], share: float) -> ModelFolder:
    """The model without a share of its heads, the least important first; one head of each layer stays.

    Args:
        importance: of `head_importance`, float64 [L, A].
        share: of all heads.
    """
    require_number("share of heads", share, least=0, below=1)
    removed = heads_to_remove(importance, share)
    width = folder.config.head_size
    tensors = dict(folder.tensors)
    for layer, head in removed:
        name = _OUTPUT.format(layer=layer)
        if tensors[name] is folder.tensors[name]:
            tensors[name] = folder.tensors[name].clone()
        tensors[name][:, head * width : (head + 1) * width] = 0
    return dataclasses.replace(folder, tensors=tensors)


def heads_to_remove(importance: npt.NDArray[np.float64], share: float) -> list[tuple[int, int]]:
    """The layer and number of the least important heads, from 0; the most important one of each layer stays.

    >>> heads_to_remove(np.array([[0.1, 0.9], [0.2, 0.3]]), 0.5), heads_to_remove(np.array([[0.1], [0.2]]), 0.9)
    ([(0, 0), (1, 0)], [])
    """
    layers, heads = importance.shape
    best = importance.argmax(axis=1)
    order = [divmod(int(index), heads) for index in np.argsort(importance, axis=None, kind="stable")]
    free = [(layer, head) for layer, head in order if head != best[layer]]
    return free[: round(share * layers * heads)]
