"""`bertsmith distill corpus` as a function: a student of a pre-trained model, trained on plain text.

::

    RUN/start/    the student as it starts: layers of the teacher, or a new model; with the method vectors, a new
                  model or one that is continued starts as in `pretrain`, without this folder
    RUN/          the pre-training run of the student (see pretraining.run); RUN/model/ is the student

Nothing is trained in a loop of its own: the student is pre-trained, and a `Teaching` adds the loss.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import choose
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.remote import require_host
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.weights import digest_of_tensors
from bertsmith.models.parts.config import BertConfig, EncoderConfig
from bertsmith.recipes.distillation.corpus_teaching import CorpusTeaching
from bertsmith.recipes.distillation.settings import TINYBERT, CorpusDistillationSettings
from bertsmith.recipes.distillation.students import LAYERS, Student, as_distilbert, student_of
from bertsmith.recipes.distillation.task_teaching import summary_of
from bertsmith.recipes.distillation.vector_teaching import VectorTeaching, principal_directions
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.pack import require_positions
from bertsmith.training.loop.result import TrainResult
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import START
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.teaching import Teaching
from bertsmith.training.pretraining.fit import check_vocabulary
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings

# What differs from continued pre-training: the optimizer in the README of DistilBERT's code, and one segment.
RECIPE: Mapping[str, Any] = {
    "objective": "mlm",
    "dynamic": True,
    "optimizer": "adam",
    "learning_rate": 5e-4,
    "beta2": 0.98,
    "epsilon": 1e-6,
    "weight_decay": 0.0,
    "warmup_share": 0.05,
    "clip_norm": 5.0,
    "schedule": "hf_linear",
    "bias_correction": True,
}
# The loss, the settings of the pre-training, and the student as it starts, if that is written to RUN/start.
Lesson = tuple[Teaching, tuple[PretrainingRunSettings, PretrainingDataSettings, TrainSettings], ModelFolder | None]


def distill_corpus(
    teacher: str | Path,
    corpus: str | Path,
    out: Path,
    settings: CorpusDistillationSettings,
    *,
    options: Mapping[str, Any],
    resume: bool = False,
    request: Request | None = None,
) -> TrainResult:
    """Trains a student on a corpus and writes RUN/model.

    Args:
        corpus: a folder that `build_corpus` wrote with the teacher's tokenizer, or with any for the method vectors.
        options: fields of the settings of pre-training that differ from the recipe, with a budget.
    """
    require_host(corpus)
    with Run.open(out, resume=resume, device=str(options.get("device", "auto"))) as run:
        for name in ("init", "size", "config", "architecture", "initialization"):
            if options.get(name) is not None:
                raise ConfigError(
                    expected="a student defined by --student and --layers", found=f"--{name}", fix="leave it out"
                )
        lesson_of = _lesson_of_vectors if settings.of_vectors else _lesson_of_model
        teaching, parts, start = lesson_of(teacher, corpus, str(run.path / START), settings, options)
        # What does not fit was refused before anything is written.
        if start is not None:
            _write_start(start, run)
        return pretrain(corpus, run.path, *parts, resume=run.is_resumed, teaching=teaching, request=request)


def _lesson_of_model(
    teacher: str | Path,
    corpus: str | Path,
    start: str,
    settings: CorpusDistillationSettings,
    options: Mapping[str, Any],
) -> Lesson:
    """The student learns soft targets, states and attention."""
    folder = load_any(teacher)
    if settings.is_distilbert and "mlm" not in folder.parts:
        fix = "name the model as it was after pre-training, or use --method tinybert"
        raise CheckpointError.needs("--method distilbert", f"a masked-LM head in the teacher '{folder.name}'", fix)
    require(
        not (settings.is_distilbert and settings.student != LAYERS),
        expected="a student of the teacher's layers, for --method distilbert",
        found=f"--student {settings.student}",
        fix="use --method tinybert, or leave --student out",
    )
    if folder.tokenizer is not None and address_of(corpus) is None:
        check_vocabulary(folder.tokenizer.vocabulary, Corpus.open(corpus, verify=False), folder.name)
    student = _student(folder, settings, seed=int(options.get("seed", 1)))
    runtime = choose(str(options.get("device", "auto")), str(options.get("precision", "auto")))
    loaded = load_pretrained(folder).model.to(runtime.torch_device).eval()
    origin = {"teacher": summary_of(folder), **student.record()}
    digest = digest_of_tensors(folder.tensors)
    teaching = CorpusTeaching(loaded, student.folder.config, settings, digest, origin, runtime.dtype)
    _require_positions_of_teacher(folder.config, options)
    parts = settings_from_recipe({**RECIPE, **options, "init": start})
    tell(
        f"teacher: {summary_of(folder)}; student: {student.folder.config.display_name}, {student.about}, "
        f"{counted(student.folder.config.num_parameters(pooler=False), 'parameter')} without heads"
    )
    return teaching, parts, student.folder


def _lesson_of_vectors(
    teacher: str | Path,
    corpus: str | Path,
    start: str,
    settings: CorpusDistillationSettings,
    options: Mapping[str, Any],
) -> Lesson:
    """The student learns vectors, pre-trained by the recipe of a new or a continued model."""
    if address_of(corpus) is not None:
        raise ConfigError.needs("--method vectors", "a corpus in a folder", f"copy '{corpus}' to this machine first")
    source = Corpus.open(corpus, verify=False)
    taken: ModelFolder | None = None
    config: EncoderConfig
    if settings.student in BertConfig.sizes:
        student = {"size": settings.student}
        config, about = BertConfig.named(settings.student), f"new model of size {settings.student}"
    elif settings.student == LAYERS:
        folder = load_any(teacher)
        check_vocabulary(folder.require_tokenizer().vocabulary, source, folder.name)
        layers = student_of(folder, LAYERS, settings.layers, spread=True)
        student, taken, about = {"init": start}, layers.folder, layers.about
        config = taken.config
    else:
        folder = load_any(settings.student)
        student, config, about = {"init": settings.student}, folder.config, f"'{folder.name}'"
    of_run, data, training = settings_from_recipe({**student, **options})
    require(
        data.objective.startswith("mlm"),
        expected="an objective that predicts masked pieces, for --method vectors",
        found=f"--objective {data.objective}",
        fix="leave it out",
    )
    embedder = load_embedder(teacher, device=of_run.device, precision=of_run.precision)
    embedder.require_pooled()
    if not isinstance(embedder.encoder, FrozenEncoder):
        raise ConfigError(
            expected="a teacher in torch", found=f"the export '{teacher}'", fix="name the folder it came from"
        )
    _require_positions_of_teacher(embedder.encoder.model.config, options)
    longest = max(data.max_length, of_run.long_length or 0)
    if longest > embedder.max_length:
        warn(
            f"rows have up to {longest} tokens, and the teacher reads {embedder.max_length}: "
            "what follows in a longer text is not in its vector"
        )
    continued = None
    if student.get("init") == settings.student:
        continued = load_embedder(settings.student, device=of_run.device, precision=of_run.precision, pooling="mean")
    directions = principal_directions(embedder, source, config.hidden_size, training.seed, continued)
    origin = {"teacher": f"{summary_of(embedder.encoder.model)}, vectors by {embedder.pooling}", "student": about}
    tell(f"teacher: {origin['teacher']}; student: {about}, {len(directions.T)} of its {embedder.width} numbers")
    is_new = "size" in student
    teaching = VectorTeaching(embedder, directions, source.tokenizer, settings, origin, is_new=is_new)
    return teaching, (of_run, data, training), taken


def _require_positions_of_teacher(config: EncoderConfig, settings: Mapping[str, Any]) -> None:
    """Refuses rows, if their length was given, for which the teacher has no positions."""
    for name in ("max_length", "long_length"):
        if settings.get(name) is not None:
            fix = "a longer document fills several rows"
            require_positions(int(settings[name]), config.max_tokens, name=f"the teacher: {name}", fix=fix)


def _student(teacher: ModelFolder, settings: CorpusDistillationSettings, *, seed: int) -> Student:
    """The student, for DistilBERT in its architecture."""
    same_heads = settings.method == TINYBERT and settings.attention_weight > 0
    student = student_of(teacher, settings.student, settings.layers, seed=seed, spread=True, same_heads=same_heads)
    if not settings.is_distilbert:
        return student
    return dataclasses.replace(student, folder=as_distilbert(student.folder))


def _write_start(folder: ModelFolder, run: Run) -> None:
    """Writes the student as it starts to RUN/start, unless the run is resumed."""
    if run.is_resumed:
        return
    tensors = {name: tensor.float().contiguous() for name, tensor in folder.tensors.items()}
    with run.locked():
        run.on_first_rank(
            lambda: write_model_folder(
                run.path / START,
                config=folder.config,
                tensors=tensors,
                tokenizer=folder.tokenizer,
                metadata=folder.metadata,
                replace=True,
            )
        )
