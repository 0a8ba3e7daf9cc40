"""A frozen encoder from any model."""

import functools
from pathlib import Path

from bertsmith.base.core.progress import quiet
from bertsmith.base.machine.runtime import choose_inference
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.int8_scales import RecordedInt8, recorded_int8
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.products.prepared import prepare
from bertsmith.tasks.encoding.frozen import FrozenEncoder, SharedEncoder

_UNUSED_HEAD = Head(part="classifier", outputs=1, pooled=False)


def load_frozen_encoder(
    source: Path | str | ModelFolder,
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    int8: RecordedInt8 | None = None,
    remembers: bool = False,
) -> FrozenEncoder:
    """The encoder of a model folder, Google checkpoint, run folder or hub id, or of a `ModelFolder`.

    Args:
        products: how linear layers are computed; see `choose_inference`.
        int8: with int8, the layers kept in higher precision and the fixed scales, instead of what is recorded.
        remembers: see `FrozenEncoder`.
    """
    folder = source if isinstance(source, ModelFolder) else load_any(source)
    loaded = load_for_task(folder, _UNUSED_HEAD, keep_head=False, parameters="mapped")
    runtime = choose_inference(device, precision, products)
    runtime.tell()
    weights = folder.path / "model.safetensors"
    if weights.is_file():
        base_digest = functools.partial(digest_file, weights)
    else:
        # Computed at once: waiting would keep the tensors of the folder in memory.
        base_digest = functools.partial(str, digest_of_tensors(folder.tensors))
    has_pooler = folder.config.can_pool and "pooler" not in loaded.new_parts
    kept, scales, digest = recorded_int8(folder, runtime) if int8 is None else int8
    prepare(loaded.model.encoder.to(runtime.torch_device), runtime, kept, scales)
    # Fixed scales determine the vectors as the kept layers do.
    kept = (*kept, digest) if digest else kept
    return FrozenEncoder(
        loaded.model.encoder,
        loaded.tokenizer,
        runtime,
        base_digest=base_digest,
        has_pooler=has_pooler,
        kept=kept,
        remembers=remembers,
    )


def loaded(shared: SharedEncoder) -> FrozenEncoder:
    """The encoder, which is loaded unless it is there."""
    if shared.encoder is None:
        with quiet():  # device and vocabulary are not news any more
            shared.encoder = load_frozen_encoder(shared.folder, device=shared.device, remembers=True)
    return shared.encoder
