"""The equivalence check of every export: the exported model and the library must give the same outputs.

Letters: B sequences of a padded batch, S tokens of the longest, C endings of a choice, N rows, T tokens, R kept
positions, K labels.

The library runs flat batches, the other side padded ones, in file order, so that lengths are mixed. Values at padding
are not compared.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from bertsmith.base.core.progress import Progress
from bertsmith.inference.export.record import Comparison, Difference
from bertsmith.inference.export.sample import Sample, Scored, odd_features
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import give_memory, load_for_task
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining, EncoderForTask
from bertsmith.models.parts.batch import rows_index
from bertsmith.models.parts.layers import linear
from bertsmith.tasks.encoding.onnx_session import (
    INPUTS,
    PER_ENDING,
    PER_SENTENCE,
    PER_TOKEN,
    Array,
    Output,
    Outputs,
    Runner,
    padded_part,
    unpadded,
)
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, RowPart, separate_rows
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.text.tokenizers.pack import PackedRows

ROWS, TOKENS = 32, 4096  # of a padded batch, at most
LOGIT_BYTES = 2**27  # of its widest output, at most

Model = EncoderForTask | EncoderForPreTraining
# The fields of a prediction that are its answer; the others are probabilities.
ANSWERS = {
    "classification": "chosen",
    "choice": "index",
    "tagging": "tags",
    "span": "text",
    "coreference": "index",
    "extraction": "text",
    "entities": "spans",
    "entities-by-name": "spans",
}


def library_model(folder: ModelFolder, spec: TaskSpec | None) -> Model:
    """The model in the library, in fp32."""
    if spec is not None:
        return load_for_task(folder, task_for(spec).head, keep_head=True).model.eval()
    with torch.device("meta"):
        model = EncoderForPreTraining(new_encoder(folder.config), seed=None)
    state = model.state_dict()
    # Tensors that the folder lacks are never used.
    give_memory(model, {name: tensor for name, tensor in folder.tensors.items() if name in state})
    return model.eval()


def library_runner(model: Model, outputs: Sequence[Output]) -> Runner:
    """A runner of padded batches in the library: strips the padding, runs the model, restores the padding as zeros."""

    def run(inputs: dict[str, Ints]) -> Outputs:
        ids, mask, segments = (inputs[name].reshape(-1, inputs[name].shape[-1]) for name in INPUTS)
        real = mask.astype(bool)
        lengths = real.sum(axis=1, dtype=np.int32)
        rows = PackedRows(ids[real].astype(np.int32), segments[real].astype(np.int32), lengths, np.zeros_like(lengths))
        features = separate_rows(rows, None)
        results = _library_outputs(model, RowPart(features=features, rows=np.arange(len(lengths))), outputs)
        for output in outputs:
            values = results[output.name]
            if output.per == PER_TOKEN:
                results[output.name] = np.zeros((*real.shape, *values.shape[1:]), dtype=np.float32)
                results[output.name][real] = values
            elif output.per == PER_ENDING:
                results[output.name] = values.reshape(inputs[INPUTS[0]].shape[:-1])
        return results

    return run


def compare(folder: ModelFolder, model: Model, outputs: Sequence[Output], runner: Runner, sample: Sample) -> Comparison:
    """How far a runner of padded batches deviates from the library, on the sample and on rows of odd lengths."""
    tallies = {output.name: _Tally() for output in outputs}
    kept = None if sample.scored is None else _Kept(sample, sample.scored)
    budget = min(TOKENS, LOGIT_BYTES // (4 * _widest(folder, outputs)))
    per = outputs[0].per
    odd = odd_features(folder, of_sentences=per == PER_SENTENCE)
    with Progress("comparing with the library", total=len(sample.rows), unit="rows") as progress:
        for part, endings in _batches(odd, sample.features, budget):
            ours = _library_outputs(model, part, outputs)
            inputs, real = padded_part(part, per, folder.config.pad_token_id)
            if per == PER_ENDING:
                inputs = {name: array.reshape(-1, endings, array.shape[1]) for name, array in inputs.items()}
            results = runner(inputs)
            theirs = {output.name: unpadded(results[output.name], output.per, real) for output in outputs}
            for name, tally in tallies.items():
                tally.add(ours[name], theirs[name])
            if part.features is sample.features:
                progress.advance(len(part.rows))
                if kept is not None:
                    kept.add(part, outputs, ours, theirs)
    differences = tuple(tally.result(name) for name, tally in tallies.items())
    return Comparison(differences=differences, **({} if kept is None else kept.scores()))


class _Tally:
    """Running statistics of the differences in one output."""

    def __init__(self) -> None:
        self.count, self.largest, self.sum, self.magnitude = 0, 0.0, 0.0, 0.0
        self.total, self.squares = 0.0, 0.0

    def add(self, ours: Array, theirs: Array) -> None:
        assert ours.shape == theirs.shape, f"outputs of {ours.shape} and {theirs.shape}"
        exact = ours.astype(np.float64)
        apart = np.abs(exact - theirs)
        self.count += exact.size
        # np.maximum propagates NaN.
        self.largest = float(np.maximum(self.largest, apart.max()))
        self.magnitude = max(self.magnitude, float(np.abs(exact).max()))
        self.sum, self.total = self.sum + float(apart.sum()), self.total + float(exact.sum())
        self.squares += float(np.square(exact).sum())

    def result(self, name: str) -> Difference:
        center = self.total / self.count
        deviation = float(np.sqrt(max(self.squares / self.count - center**2, 0.0)))
        spread = max(deviation, self.magnitude / 10, float(np.finfo(np.float32).tiny))
        return Difference(
            output=name,
            values=self.count,
            largest=self.largest / spread,
            mean=self.sum / self.count / spread,
            spread=spread,
        )


class _Kept:
    """The logits of both sides at the positions that the task uses, float32 [R, K], in feature order."""

    def __init__(self, sample: Sample, scored: Scored) -> None:
        self.scored, self.features = scored, sample.features
        features, head = sample.features, scored.task.head
        # Pooled heads use one position per row; the others give logits of all tokens, or of the sentences only.
        self.is_read = head.pooled or head.of_sentences or features.read is None
        count = features.num_read if self.is_read else len(features.rows.token_ids)
        self.ours = np.empty((count, head.outputs), dtype=np.float32)
        self.theirs = np.empty_like(self.ours)

    def add(self, part: RowPart, outputs: Sequence[Output], ours: Outputs, theirs: Outputs) -> None:
        places = part.chosen if self.is_read else rows_index(self.features.lengths, part.rows)
        for kept, values in ((self.ours, ours), (self.theirs, theirs)):
            parts = [values[output.name] for output in outputs]
            kept[places] = parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)

    def scores(self) -> dict[str, Any]:
        """The task's score on both sides, the loss, and the number of changed answers."""
        task, features, examples = self.scored.task, self.features, self.scored.examples
        scores, answers = [], []
        for logits in (self.ours, self.theirs):
            read = logits if self.is_read else logits[features.read]
            predictions = task.decode(examples, features, read, self.scored.tokenizer)
            scores.append(task.score(examples, predictions)[task.spec.metric])
            if task.spec.kind in ANSWERS:
                answers.append([getattr(prediction, ANSWERS[task.spec.kind]) for prediction in predictions])
        # SQuAD's scorer reports percentages.
        unit = 100 if task.spec.kind == "span" else 1
        return {
            "metric": task.spec.metric,
            "library": scores[0],
            "exported": scores[1],
            "loss": (scores[0] - scores[1]) / unit,
            "examples": len(examples),
            "changed": sum(answer != other for answer, other in zip(*answers, strict=True)) if answers else None,
        }


def _widest(folder: ModelFolder, outputs: Sequence[Output]) -> int:
    has_vocabulary = len(outputs) > 1 and "mlm" in folder.parts
    return folder.config.vocab_size if has_vocabulary else folder.config.hidden_size


def _batches(odd: EncodedExamples, features: EncodedExamples, tokens: int) -> Iterator[tuple[RowPart, int]]:
    """Padded batches and the endings per example in them: rows of odd lengths, then those of the sample in order."""
    rows_of_all = np.arange(len(odd.rows), dtype=np.int64)
    for chosen in (rows_of_all, rows_of_all[:1], rows_of_all[-1:]):
        yield RowPart(features=odd, rows=chosen), len(chosen)
    counts = features.rows_per_unit
    for count in np.unique(counts).tolist():
        rows: list[int] = []
        longest = 0
        for unit in np.flatnonzero(counts == count).tolist():
            new = list(range(int(features.first_rows[unit]), int(features.first_rows[unit]) + count))
            length = int(features.lengths[new].max())
            full = (len(rows) + count) * max(longest, length) > tokens or len(rows) + count > ROWS
            if rows and full:
                yield RowPart(features=features, rows=np.array(rows)), count
                rows, longest = [], 0
            rows, longest = rows + new, max(longest, length)
        yield RowPart(features=features, rows=np.array(rows)), count


@torch.inference_mode()
def _library_outputs(model: Model, part: RowPart, outputs: Sequence[Output]) -> Outputs:
    """The library's outputs for some rows, one row per token, sequence, ending or sentence."""
    gathered = part.gather("cpu")
    batch = gathered.batch
    if isinstance(model, EncoderForTask):
        logits = model(batch, read=gathered.read if outputs[0].per == PER_SENTENCE else None).numpy()
        if len(outputs) == 1:
            return {outputs[0].name: logits}
        return {output.name: logits[:, column] for column, output in enumerate(outputs)}
    hidden = model.encoder(batch)
    results = {"last_hidden_state": hidden}
    names = [output.name for output in outputs]
    first = hidden[batch.first_positions]
    if "pooler_output" in names or "seq_relationship_logits" in names:
        results["pooler_output"] = model.encoder.pool(first)
    if "seq_relationship_logits" in names:
        results["seq_relationship_logits"] = linear(results["pooler_output"], model.nsp)
    if "logits" in names:
        is_mlm = outputs[names.index("logits")].per == PER_TOKEN
        word = model.encoder.word_table
        results["logits"] = model.mlm(hidden, word) if is_mlm else linear(model.encoder.pool(first), model.nsp)
    return {name: results[name].numpy() for name in names}
