"""The settings of a model of visits: its shape and its training, apart from the training loop."""

from dataclasses import dataclass

from bertsmith.base.core.settings import help_field, require, require_limits

SINGLE, ALL = "single", "all"


@dataclass(frozen=True, kw_only=True)
class CodesSettings:
    """A new model of visits and its training, apart from the training loop."""

    given_kind: str | None = help_field(
        None,
        "with --wanted: the kind of codes that are known of a visit, such as diagnosis",
        flag="--given",
        metavar="KIND",
    )
    wanted_kind: str | None = help_field(
        None,
        "the kind of codes that the model recommends, such as medication [without it, the codes of the next visit]",
        flag="--wanted",
        metavar="KIND",
    )
    tree: bool = help_field(True, "vectors of codes from the tree, if the folder has one")
    width: int = help_field(128, "width of all vectors; 300 in the paper", least=1, most=10**5)
    layers: int = help_field(2, "layers of the encoder of visits", least=1, most=1000)
    heads: int = help_field(
        4, "attention heads, and heads of the attention in the tree; must divide width", least=1, most=10**5
    )
    dropout: float = help_field(0.2, "dropout in the layers; 0.4 in the paper", least=0, below=1)
    masked_share: float = help_field(0.15, "fraction of the codes that pre-training masks", above=0, below=1)
    pretrain_on: str = help_field(
        ALL,
        "visits of the pre-training: those of all training subjects, or of subjects with a single visit",
        choices=(ALL, SINGLE),
    )
    pretraining_epochs: int = help_field(
        15, "passes over the visits in pre-training, in each round; 5 in the paper", least=0, most=10**6
    )
    epochs: int = help_field(
        15, "passes over the subjects after it, in each round; 5 in the paper", least=1, most=10**6
    )
    rounds: int = help_field(
        1, "how often pre-training and what follows take turns; 16 in the paper", least=1, most=10**6
    )
    visits_per_step: int = help_field(64, "visits per optimizer step of pre-training", least=1, most=10**6)
    subjects_per_step: int = help_field(8, "subjects per optimizer step after it; 1 in the paper", least=1, most=10**6)
    first_visits: bool = help_field(False, "with --wanted: learn from, and score, visits without a past too")
    dev_share: float = help_field(
        0.15, "fraction of the subjects that choose the model and the threshold", above=0, below=1
    )
    test_share: float = help_field(0.15, "fraction of the subjects that the scores are of", above=0, below=1)
    baselines: bool = help_field(True, "compare with simple baselines on the same visits")
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")

    def __post_init__(self) -> None:
        require_limits(self)
        require(
            (self.given_kind is None) == (self.wanted_kind is None),
            expected="--given and --wanted",
            found="only one of them",
            fix="name both kinds of codes, or neither to predict the next visit",
        )
        require(
            self.given_kind is None or self.given_kind != self.wanted_kind,
            expected="two kinds of codes as --given and --wanted",
            found=f"{self.given_kind!r} twice",
            fix="name two kinds, or neither to predict the next visit",
        )

    @property
    def recommends(self) -> bool:
        """Whether codes of the current visit are recommended; otherwise those of the next one are predicted."""
        return self.wanted_kind is not None
