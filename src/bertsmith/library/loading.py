"""Any model, from wherever it is, as a `Model`."""

from pathlib import Path

from bertsmith.checkpoints.load import load_any
from bertsmith.encoding.frozen import FrozenEncoder
from bertsmith.inference.predictor import Predictor
from bertsmith.inference.pretraining_heads import PretrainedPredictor
from bertsmith.library.model import Model
from bertsmith.model.heads import OwnHead
from bertsmith.tasks.spec_of_model import spec_of
from bertsmith.vectors.embedder import Embedder
from bertsmith.vectors.sentence_transformers import read_recipe


def load(
    source: str | Path, *, device: str = "auto", precision: str = "fp32", head: type[OwnHead] | None = None
) -> Model:
    """The model in a folder (ours, of `transformers` or sentence-transformers), a run, a Google checkpoint or of an id.

    Args:
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: fp32, bf16, int8 and the like; what comes out is fp32 in any case.
        head: the class of your own head with which the model was fine-tuned, if it was.

    Raises:
        InputError, CheckpointError, VocabularyError: there is no model, or one that cannot be read.
        ConfigError: the device is absent, the precision unknown, or `head` no class of a head.
    """
    if head is not None:
        predictor = Predictor.load(source, device=device, precision=precision, head=head)
        return Model(_last_part(source), predictor=predictor)
    recipe = read_recipe(Path(source))
    if recipe is not None:
        return Model(_last_part(source), embedder=Embedder.load(source, device=device, precision=precision))
    folder = load_any(source)
    if read_recipe(folder.path) is not None:
        return Model(_last_part(source), embedder=Embedder.load(folder.path, device=device, precision=precision))
    folder.require_tokenizer()
    if spec_of(folder) is not None:
        return Model(_last_part(source), predictor=Predictor.load(folder, device=device, precision=precision))
    if {"mlm", "nsp"}.isdisjoint(folder.parts):
        encoder = FrozenEncoder.load(folder, device=device, precision=precision)
        return Model(_last_part(source), embedder=Embedder(encoder))
    pretrained = PretrainedPredictor.load(folder, device=device, precision=precision)
    return Model(_last_part(source), pretrained=pretrained, parts=folder.parts)


def _last_part(source: str | Path) -> str:
    """What a model is called: the id, or the last part of the path; of a run's model folder the run."""
    path = Path(source)
    if not path.exists():
        return str(source)
    path = path.resolve()
    return path.parent.name if path.name == "model" and path.parent.name else path.name
