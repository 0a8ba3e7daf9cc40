"""The base model of a fine-tuning: what the settings require of it, and how it is loaded."""

import dataclasses
from collections.abc import Collection
from typing import Any

from bertsmith.base.core.errors import nearest, some
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import require, require_other
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.head_spec import (
    COSENT,
    COSINE,
    MARGIN,
    OBJECTIVES,
    RANKING,
    RERANKING,
    TRIPLET,
    WITH_LAYER,
    Head,
)
from bertsmith.models.heads.vector_forms import DENSE, TOKEN_WIDTH, VECTOR_FORMS, VectorForm
from bertsmith.models.model_files.metadata import OF_VECTORS, SIMILARITY
from bertsmith.models.parts.head_inputs import ATTENTION, BILSTM, MARKERS, READERS
from bertsmith.models.parts.part_names import TOKEN_PROJECTION
from bertsmith.recipes.finetuning.settings import ENCODER, KEPT, PROBE, RANDOM, SHARED, FinetuningSettings
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import BY_NAME, GENERATION, TaskSpec
from bertsmith.tasks.task_data.spec_of_model import spec_of_head
from bertsmith.text.tokenizers.pack import require_positions

# What a spec says of its head besides the labels.
_OF_HEAD = (
    "reads", "bilstm_cells", "bilstm_layers", "normalize_layers", "activation", "decoder_layers", "shares_layers",
    "gliner",
)  # fmt: skip
# The losses of the tasks of vectors, the default first; those of any task with a teacher besides.
_LOSSES = {
    "similarity": (COSINE, COSENT),
    "pairs": (RANKING, *WITH_LAYER),
    "triplets": (RANKING, TRIPLET, MARGIN),
    "texts": (RANKING,),
    "response-selection": (RANKING,),
}


def require_base(folder: ModelFolder, settings: FinetuningSettings, *, pooled: bool) -> None:
    """Returns if the settings fit the architecture of the model.

    Args:
        pooled: whether the head of the task reads one vector per row.

    Raises:
        ConfigError: they ask for a pooler or a language-model loss that it cannot have, or for a linear start on a
            pooler that nothing has trained.
    """
    config = folder.config
    require(
        not settings.language_model_loss or (config.is_causal and not config.reads_backward),
        expected="a left-to-right model for a language-model loss",
        found=f"a {'right-to-left' if config.reads_backward else 'bidirectional'} {config.display_name}",
        fix="leave --language-model-loss out",
    )
    require(
        settings.reads != "pooler" or config.can_pool or not pooled,
        expected=f"reads as cls or mean for a {config.display_name}, which has no pooler",
        found="pooler",
        fix="use --reads cls",
    )
    on_pooler = pooled and config.can_pool and settings.reads in (None, "pooler")
    require(
        settings.start != "linear" or not on_pooler or "pooler" in folder.parts,
        expected="a model with a trained pooler, for a linear start of a head that reads the pooler",
        found="one without",
        fix="use --start random, or --reads cls or mean",
    )


def loading_options(folder: ModelFolder, settings: FinetuningSettings) -> dict[str, Any]:
    """What the settings ask of the base model and of its new head: arguments of `load_for_task`."""
    changes: dict[str, float | None] = {}
    if settings.dropout is not None:
        changes = {**folder.config.dropout_changes(settings.dropout), "classifier_dropout": None}
    predicts = settings.language_model_loss > 0
    return {
        "keep_head": settings.start == KEPT,
        "changes": changes,
        "reinit_layers": settings.reinit_layers,
        "predicts": predicts,
        "copies_layers": settings.decoder_start != RANDOM and settings.start != KEPT,
    }


def require_divisible(head: Head, settings: FinetuningSettings) -> None:
    """Returns if a training can divide its model among processes.

    Raises:
        ConfigError: its loss has parameters of its own, which are outside of the model's forward pass.
    """
    obstacle = (
        "a decoder, which shares tables with the encoder"
        if head.is_decoder
        else "a language-model loss"
        if settings.language_model_loss
        else "a penalty on the weights of layers"
        if settings.mix_penalty
        else "an adapter"
        if settings.lora_rank is not None
        else "a loss of vectors with a layer of its own"
        if head.is_vector and head.outputs
        else "vectors from the masked-LM head, which shares the word table with the encoder"
        if head.pieces is not None
        else None
    )
    require(
        obstacle is None,
        expected="a loss of the model's outputs alone, to divide the model among processes",
        found=obstacle,
        fix="leave --shard out",
    )


def spec_of_job(spec: TaskSpec, folder: ModelFolder, settings: FinetuningSettings) -> TaskSpec:
    """The spec as the settings and the base model ask for it, apart from what a probe decides.

    Raises:
        ConfigError: the settings do not fit the task.
    """
    spec = _with_decoder(_with_vectors(_with_list_loss(_fitted(spec, folder), settings), settings, folder), settings)
    return _with_head_of(folder, spec) if settings.start == KEPT else _read_as_asked(spec, settings)


def _with_head_of(folder: ModelFolder, spec: TaskSpec) -> TaskSpec:
    """The spec with the labels and the head of the task that the model was fine-tuned for.

    Raises:
        ConfigError: it has no such head, or the training file has other labels.
    """
    stored, fix = spec_of_head(folder), "use --start random"
    require(
        stored is not None and stored.kind == spec.kind,
        expected=f"a model with a head for {spec.title}, for --start {KEPT}",
        found="one without a head" if stored is None else f"one for {stored.title}",
        fix=fix,
    )
    assert stored is not None, "it has one"
    unknown = [] if spec.kind == BY_NAME else [label for label in spec.labels if label not in stored.labels]
    require(
        not unknown,
        expected=f"labels that the model has, for --start {KEPT}: {some(stored.labels)}",
        found=some(list(map(repr, unknown))),
        fix=f"rename them with --map, or {fix}",
    )
    changed = dataclasses.replace(spec, **{name: getattr(stored, name) for name in _OF_HEAD})
    if spec.kind != BY_NAME:
        changed = dataclasses.replace(changed, labels=stored.labels, parents=stored.parents)
    same = (stored.multi_label, stored.scheme) == (spec.multi_label, spec.scheme)
    require(
        same and task_for(changed).head == task_for(stored).head,
        expected=f"the settings of the head of '{folder.name}', for --start {KEPT}",
        found="others, such as --long-text or tags of another scheme",
        fix=f"give those of its training, or {fix}",
    )
    return changed


def _read_as_asked(spec: TaskSpec, settings: FinetuningSettings) -> TaskSpec:
    """The spec with what its head should read, where the settings say so and do not leave it to a probe.

    Raises:
        ConfigError: the settings ask a head on tokens for what only one on whole texts can read, or for a penalty on
            weights that are not learned.
    """
    head = task_for(spec).head
    if head.is_vector or settings.reads in (None, PROBE):
        return spec
    if not head.pooled and (head.of_sentences or settings.reads not in READERS):
        if settings.reads not in ("pooler", spec.reads):  # not refused: recipes have such values
            of_tokens = "the hidden states of tokens, or with bilstm a BiLSTM over them"
            why = f"a head for {spec.title} reads {'means of sentences' if head.of_sentences else of_tokens}"
            warn(f"reads {settings.reads} has no effect: {why}")
        return spec
    require(
        head.pooled or settings.reads != ATTENTION,
        expected=f"reads {BILSTM} for {spec.title}, whose examples have no two texts to compare",
        found=str(settings.reads),
        fix=f"use --reads {BILSTM}",
    )
    layers = settings.bilstm_layers or spec.bilstm_layers
    require(
        not settings.mix_penalty or not layers or layers.startswith("sum"),
        expected="a sum of layers, for a penalty on its learned weights",
        found=f"{layers}, which is not a sum",
        fix="use --bilstm-layers sum-all, or leave --mix-penalty out",
    )
    return dataclasses.replace(
        spec,
        reads=str(settings.reads),
        bilstm_cells=spec.bilstm_cells if settings.bilstm_cells is None else settings.bilstm_cells,
        bilstm_layers=layers,
        normalize_layers=settings.normalize_layers or spec.normalize_layers,
    )


def require_lengths(spec: TaskSpec, folder: ModelFolder, names: Collection[str]) -> None:
    """Returns if the model has the positions for the lengths that were given, by the names of their settings.

    Raises:
        ConfigError: it has fewer; a length that was not given is reduced instead, with a warning.
    """
    used = task_for(spec).settings_used
    fix = "longer texts are read in windows" if "stride" in used else "longer texts are cut"
    if {"stride", "long_text"} <= used:
        fix = f"use --long-text windows{' or hierarchical' if spec.kind == 'classification' else ''} for longer texts"
    for name, most in _limits(spec, folder).items():
        if name in names:
            require_positions(getattr(spec.settings, name), most, name=name, fix=fix)


def _limits(spec: TaskSpec, folder: ModelFolder) -> dict[str, int]:
    """The most tokens that the model has positions for, by the names of the settings."""
    limits = {"max_length": folder.config.max_tokens}
    if "max_target_length" in task_for(spec).settings_used:
        limits["max_target_length"] = folder.config.max_tokens - 1  # the first position is that of [CLS]
    return limits


def _fitted(spec: TaskSpec, folder: ModelFolder) -> TaskSpec:
    """The spec with rows no longer than the model reads, and without a pooler where the encoder has none."""
    if not folder.config.can_pool and spec.reads == "pooler":
        spec = dataclasses.replace(spec, reads="cls")
    limit = folder.config.max_tokens
    changes: dict[str, Any] = {
        name: most for name, most in _limits(spec, folder).items() if getattr(spec.settings, name) > most
    }
    for name, most in changes.items():
        warn(f"{name} reduced from {getattr(spec.settings, name)} to {most}: the model has only {limit} positions")
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, **changes)) if changes else spec


def _with_decoder(spec: TaskSpec, settings: FinetuningSettings) -> TaskSpec:
    """The spec of a task of texts to write with the layers of the settings; other specs unchanged.

    Raises:
        ConfigError: the settings ask for a decoder in another task, or for what a model with one cannot have.
    """
    asked = settings.decoder_layers is not None or (settings.decoder_start, settings.decoder_rate) != (ENCODER, 1.0)
    if spec.kind != GENERATION:
        require(
            not asked,
            expected="a task of texts to write for --decoder-layers, --decoder-start and --decoder-rate",
            found=spec.title,
            fix="leave them out",
        )
        return spec
    require(
        not settings.language_model_loss,
        expected="a loss of the texts to write alone",
        found="a language-model loss",
        fix="leave --language-model-loss out",
    )
    shares = settings.decoder_start == SHARED
    return dataclasses.replace(spec, decoder_layers=settings.decoder_layers or 0, shares_layers=shares)


def _with_list_loss(spec: TaskSpec, settings: FinetuningSettings) -> TaskSpec:
    """The spec of a task of lists with the loss of the settings; other specs unchanged."""
    if spec.kind == RERANKING:
        return dataclasses.replace(spec, objective=settings.list_loss or spec.objective)
    require_other(settings.list_loss is None, "--list-loss", f"--task {RERANKING}")
    return spec


def _with_vectors(spec: TaskSpec, settings: FinetuningSettings, folder: ModelFolder) -> TaskSpec:
    """The spec of a task of vectors with the loss, the pooling and the widths of the settings; other specs unchanged.

    Raises:
        ConfigError: the settings do not fit such a task, or ask for it in another task.
    """
    form = VECTOR_FORMS[settings.vectors]
    of_pieces = (settings.query_flops, settings.passage_flops)
    has_vector_settings = (settings.vector_loss, settings.widths, settings.vectors, *of_pieces) != (
        None, None, DENSE, None, None
    )  # fmt: skip
    if spec.kind not in OF_VECTORS:
        require(
            not has_vector_settings,
            expected=f"the task {', '.join(_LOSSES)} for --vectors, --vector-loss and --widths",
            found=spec.title,
            fix="leave them out",
        )
        return spec
    require(
        settings.vectors == DENSE or spec.kind == SIMILARITY,
        expected=f"--vectors {DENSE} for the task {spec.name}",
        found=settings.vectors,
        fix="leave it out, or use --task pairs",
    )
    _require_form(form, settings, folder)
    losses = tuple(loss for loss in _LOSSES.get(spec.name, OBJECTIVES) if loss in form.objectives)
    objective = settings.vector_loss or losses[0]
    require(
        objective in losses,
        expected=f"vector_loss {' or '.join(losses)} for the task {spec.name} with --vectors {settings.vectors}",
        found=objective,
        fix=nearest(objective, losses),
    )
    require(
        objective not in WITH_LAYER or len(spec.labels) > 1,
        expected=f"pairs with different labels for --vector-loss {objective}",
        found=f"the label {spec.labels[0]!r} alone" if spec.labels else "pairs without labels",
        fix="use --vector-loss ranking, or name the column with --label-column",
    )
    reads = settings.reads or form.reads[0]
    allowed = [name for name in form.reads if name != "cls" or not folder.config.is_causal]
    require(
        reads in allowed,
        expected=f"reads as {' or '.join(allowed)} with --vectors {settings.vectors}",
        found=reads,
        fix=f"use --reads {allowed[0]}",
    )
    require(
        settings.freeze != "body" and not settings.language_model_loss,
        expected="a body that is trained for its vectors alone",
        found="freeze body" if settings.freeze == "body" else "a language-model loss",
        fix="leave it out",
    )
    return dataclasses.replace(
        spec,
        settings=_with_markers(spec.settings, form, folder),
        reads=reads,
        vectors=settings.vectors,
        objective=objective,
        widths=_widths(settings.widths, folder, form),
        labels=spec.labels if objective in WITH_LAYER else (),
    )


def _with_markers(settings: TaskSettings, form: VectorForm, folder: ModelFolder) -> TaskSettings:
    """The settings with the markers of expanded queries and of passages as their prompts, if there are no others.

    Raises:
        ConfigError: queries can be expanded neither in this form nor to this length.
    """
    if not settings.query_length:
        return settings
    require_other(form.of_tokens, "--query-length", "--vectors tokens")
    tokenizer = folder.require_tokenizer()
    least = tokenizer.template.num_special(1) + 2  # a marker and a piece
    require(
        least <= settings.query_length <= settings.max_length,
        expected=f"a query length from {least} to {settings.max_length}, the maximum tokens per row",
        found=settings.query_length,
        fix="choose a value in that range, or raise --max-length",
    )
    if settings.query_prompt or settings.passage_prompt or not set(MARKERS) <= tokenizer.vocabulary.index.keys():
        return settings
    return dataclasses.replace(settings, query_prompt=MARKERS[0], passage_prompt=MARKERS[1])


def _require_form(form: VectorForm, settings: FinetuningSettings, folder: ModelFolder) -> None:
    """Returns if the model can give vectors of a form, with these settings."""
    require(
        form.has_widths or form.of_tokens or settings.widths is None,
        expected=f"--vectors {DENSE} for --widths",
        found=settings.vectors,
        fix="leave one of the two out",
    )
    require(
        form.of_pieces or (settings.query_flops, settings.passage_flops) == (None, None),
        expected="--vectors sparse or inference-free for --query-flops and --passage-flops",
        found=settings.vectors,
        fix="leave them out",
    )
    require(
        not form.has_query_table or settings.lora_rank is None,
        expected=f"a training without an adapter, for --vectors {settings.vectors}",
        found="--lora-rank",
        fix="leave one of the two out",
    )
    if not form.of_pieces:
        return
    config = folder.config
    require(
        not (config.is_causal or config.two_directions) and ("mlm" in folder.parts or config.piece_head == "tied"),
        expected=f"an encoder in both directions with its masked-LM head, for --vectors {settings.vectors}",
        found=f"{config.display_name} with {', '.join(folder.parts) or 'no head'}",
        fix="use the model as it was after pre-training",
    )


def _widths(widths: str | None, folder: ModelFolder, form: VectorForm) -> tuple[int, ...]:
    """The widths in a list such as "192,96", largest first; of vectors of tokens the width of these alone.

    Raises:
        ConfigError: one is not a number, is not smaller than that of the model, or does not divide it.
    """
    width = folder.config.hidden_size
    if form.of_tokens:
        learned = folder.tensors.get(f"{TOKEN_PROJECTION}.weight")
        chosen = widths if widths is not None else str(TOKEN_WIDTH if learned is None else len(learned))
        require(
            chosen.isdecimal() and int(chosen) > 0 and (learned is None or int(chosen) == len(learned)),
            expected="a number as --widths, for vectors of tokens"
            if learned is None
            else f"--widths {len(learned)}, the width of the vectors of tokens that the model has",
            found=repr(chosen),
            fix="correct it, or leave it out",
        )
        return (int(chosen),)
    numbers = []
    for part in widths.split(",") if widths is not None else ():
        number = int(part) if part.strip().isdecimal() else 0
        require(
            0 < number < width and width % number == 0,
            expected=f"widths that divide the model's {width} and are smaller, such as {width // 2},{width // 4}",
            found=repr(part.strip()),
            fix="correct --widths",
        )
        numbers.append(number)
    return tuple(sorted(set(numbers), reverse=True))
