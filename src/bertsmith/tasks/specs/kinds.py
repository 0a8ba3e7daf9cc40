"""The kinds of task, by the name in a model's metadata.

A new kind needs one file with one class and an entry here; training, evaluation, prediction and serving look it up.
CONTRIBUTING.md ("Adding a kind of task") names the rest, such as the format of its files.
"""

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.registry import Registry
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.tasks.specs.task import BY_NAME, COREFERENCE, ENTITIES, EXTRACTION, GENERATION, Task, TaskSpec

KINDS = Registry[type[Task]](
    {
        "classification": "tasks.specs.classification:ClassificationTask",
        "regression": "tasks.specs.regression:RegressionTask",
        RERANKING: "tasks.specs.reranking:RerankingTask",
        "similarity": "tasks.specs.similarity:SimilarityTask",
        "choice": "tasks.specs.choice:ChoiceTask",
        "selection": "tasks.specs.selection:SelectionTask",
        "tagging": "tasks.specs.tagging:TaggingTask",
        "span": "tasks.specs.span:SpanTask",
        GENERATION: "tasks.specs.generation:GenerationTask",
        EXTRACTION: "tasks.specs.extraction:ExtractionTask",
        COREFERENCE: "tasks.specs.coreference:CoreferenceTask",
        ENTITIES: "tasks.specs.nested_entities:EntitiesTask",
        BY_NAME: "tasks.specs.named_entities:NamedEntitiesTask",
    }
)
_OF_GLINER = Registry[type[Task]]({BY_NAME: "tasks.specs.gliner:GlinerTask"})


def task_for(spec: TaskSpec) -> Task:
    """The task for a spec."""
    if spec.kind not in KINDS:
        raise ConfigError.unknown("kind of task", spec.kind, KINDS)
    return (KINDS if spec.gliner is None else _OF_GLINER)[spec.kind](spec)
