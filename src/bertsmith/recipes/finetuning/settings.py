"""The settings of fine-tuning: how much data, which parameters, and the optimizer's recipe.

Source: Devlin et al. (2018), appendix A.3; flags of the original run_classifier.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bertsmith.base.core.parameters import optional
from bertsmith.base.core.settings import (
    RECIPES,
    help_field,
    require,
    require_known,
    require_limits,
    require_number,
    require_other,
    to_dict,
)
from bertsmith.models.heads.head_spec import LIST_OBJECTIVES
from bertsmith.models.heads.vector_forms import DENSE, VECTOR_FORMS
from bertsmith.models.parts.head_inputs import APART, CONCAT, READERS, READS
from bertsmith.training.loop.settings import TENSORBOARD, TRACK, TrainSettings

ULMFIT = "ulmfit"
SETFIT = "setfit"
OF_ONE_TRAINING = (*RECIPES, ULMFIT)  # recipes without a training before
FINETUNING_RECIPES = (*OF_ONE_TRAINING, SETFIT)
FREEZE = ("nothing", "embeddings", "body")
LINEAR, KEPT = "linear", "kept"
_MANY_STEPS = 10**9  # more than any warm-up
ENCODER, SHARED, RANDOM = "encoder", "shared", "random"
STARTS = (RANDOM, LINEAR, KEPT)
DECODER_STARTS = (ENCODER, SHARED, RANDOM)
CLASS_WEIGHTS = ("none", "balanced")
BAG_ALONE = "bag"  # what is kept: the bag of words, without any training
KEEPS = ("best", "last", "auto", BAG_ALONE)
MERGES = ("best", "average")
PROBE = "probe"
# What a search tries: the lists of the paper (appendix A.3) and other common ones.
GRID: Mapping[str, tuple[float, ...]] = {
    "learning_rate": (3e-6, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5),
    "batch_size": (16, 32),
    "epochs": (2, 3, 4),
}
LINEAR_KINDS = ("classification", "regression", "tagging")  # kinds of task whose new layer can be fitted to vectors
_OF_THE_PAPER: Mapping[str, Mapping[str, float]] = {
    "squad2": {"batch_size": 48, "epochs": 2.0},
    "swag": {"batch_size": 16, "learning_rate": 2e-5},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningSettings:
    """The settings of fine-tuning, apart from the optimizer's recipe.

    Raises:
        ConfigError: a value is invalid.
    """

    batch_size: int = help_field(
        32,
        "examples per optimizer step (for questions and tagging: windows); 2018: for squad2 48, for swag 16; "
        "auto: 16 below 10,000 examples",
        most=10**6,
    )
    epochs: float = help_field(
        3.0, "passes over the training data; 2018: for squad2 2; auto: more for small training sets", most=10_000
    )
    freeze: str = help_field(
        "nothing",
        "what is not trained: nothing, embeddings, or body (all but the head and the pooler); auto: "
        "embeddings below 10,000 examples",
    )
    reads: str | None = help_field(
        None,
        "input of the head; on whole texts: pooler, cls (the [CLS] state, without the pooler), mean "
        "(over all tokens), pair (the means of both texts, their difference and product), apart (the "
        "same, with each text encoded alone), concat (the [CLS] state, the maximum and the mean over "
        "all tokens, with a hidden layer on top), bilstm or bilstm-attention (a BiLSTM over all "
        "hidden states of each text, the second with attention between two texts, as in the "
        "baselines of GLUE; auto then freezes the body), or probe: the one on which a linear model "
        "scores best [pooler; auto: probe; ulmfit: concat]; for tags and answers: bilstm (over the tokens of a row) "
        "[their hidden states]; of vectors of texts: mean, max or cls [mean]",
    )
    bilstm_cells: int | None = help_field(
        None, "with --reads bilstm or bilstm-attention: cells of the BiLSTM in each direction [1500]", most=10**5
    )
    bilstm_layers: str | None = help_field(
        None,
        "hidden states that this BiLSTM reads: embeddings, second-to-last, last, concat-last-4, sum-last-4, sum-all or "
        "sum-with-embeddings (a sum has learned weights and a learned scale), or numbers such as -1,-2 "
        "[sum-with-embeddings]",
    )
    normalize_layers: bool = help_field(
        False, "bring each of these hidden states to mean 0 and variance 1 before they are summed or concatenated"
    )
    mix_penalty: float = help_field(
        0.0,
        "L2 penalty on the scores of these learned weights: 0.001 leaves them free, 1 keeps the sum near the mean",
    )
    start: str = help_field(
        "random",
        "initial values of the layer on top: random; linear: fitted to the vectors of the base model; kept: those of "
        "the model, whose task must be of the same kind and have all labels of the training file; auto: linear",
    )
    decoder_layers: int | None = help_field(
        None, "tasks that write text: layers of the decoder [as many as the encoder has]", most=1000
    )
    decoder_start: str = help_field(
        ENCODER,
        "tasks that write text: initial values of the decoder: encoder (its layers, at equal distances, and the head "
        "that predicts masked pieces; attention to the source is new), shared (the same, but its layers remain those "
        "of the encoder: about half the parameters) or random",
    )
    decoder_rate: float = help_field(
        1.0, "tasks that write text: learning rate of the decoder as a multiple of that of the encoder; auto: 4"
    )
    class_weights: str | Mapping[str, float] = help_field(
        "none",
        "none, or balanced: every label has the same total weight in the loss of a classification, however rare it is; "
        "or weights of labels, such as Spam=2,Ham=0.5 (others: 1), of which only the ratios count",
        library="none, or balanced: every label has the same total weight in the loss of a classification, however "
        'rare it is; or weights of labels, such as {"Spam": 2, "Ham": 0.5} (others: 1), of which only the ratios count',
        kind=str,
    )
    reinit_layers: int = help_field(0, "number of top encoder layers to re-initialize")
    layer_decay: float = help_field(1.0, "learning rate of each layer as a fraction of that of the layer above")
    gradual_unfreezing: bool = help_field(
        False,
        "first train only the head, then unfreeze one more layer from the top in every epoch (sooner in short runs)",
    )
    lora_rank: int | None = help_field(
        None,
        "train a low-rank adapter (LoRA) of this rank in place of the encoder, which stays as it is: RUN/adapter is in "
        "the format of peft, and RUN/model has the adapter merged into it",
        most=1024,
    )
    lora_alpha: float | None = help_field(None, "scale of the adapter times its rank [twice --lora-rank]")
    lora_targets: str | None = help_field(
        None,
        "linear layers with an adapter, by their names in transformers or the ends of these, such as "
        "query,value,output.dense, or all-linear [queries and values]",
        metavar="NAMES",
    )
    dropout: float | None = help_field(
        None,
        "dropout of hidden states and attention; for an LSTM, the rate between its layers; its "
        "other rates scale with it [that of the model]",
    )
    micro_tokens: int = help_field(
        4096, "maximum tokens per micro-batch; affects memory and speed, not the result", most=2**24
    )
    device: str = help_field("auto", "auto, cpu, cuda or cuda:N")
    precision: str = help_field("auto", "auto, fp32 or bf16; auto is bf16 if the hardware supports it")
    language_model_loss: float = help_field(
        0.0,
        "for a left-to-right model: weight of the language-model loss on the texts, added to the "
        "loss of the task; 0.5 in GPT",
    )
    vectors: str = help_field(
        DENSE,
        "similarity, pairs, triplets, texts: form of the vectors: dense, sparse (a weight for each piece of the "
        "vocabulary, from the masked-LM head, as in SPLADE), inference-free (the same, but pieces of the first texts "
        "have learned weights, without the encoder), or tokens (one for each token, as in ColBERT)",
        choices=tuple(VECTOR_FORMS),
    )
    vector_loss: str | None = help_field(
        None,
        "similarity: cosine (squared difference from the score) or cosent (the order of the scores); pairs: ranking "
        "(among all texts of the step), softmax or infersent (labels of pairs, as in Sentence-BERT and InferSent); "
        "triplets: ranking or triplet (Euclidean distances); texts: ranking [cosine; ranking]",
    )
    list_loss: str | None = help_field(
        None,
        "reranking: lambda (the order of each two candidates, weighed by nDCG), ranknet (their order alone), listnet "
        "(the softmax of the scores), margin (differences of the scores to that of the first candidate, as of a "
        "teacher) or pointwise (each score by itself, from 0 to 1) [lambda; with --teacher margin]",
        choices=LIST_OBJECTIVES,
    )
    scale: float | None = help_field(
        None, "ranking and cosent: factor on the similarities, the inverse of a temperature [20; ranking of sparse: 1]"
    )
    margin: float = help_field(
        1.0, "--vector-loss triplet: margin by which the negative text must be further away than the positive one"
    )
    query_flops: float | None = help_field(
        None,
        "--vectors sparse: weight of the FLOPS regularizer of the first texts, which keeps the number of their pieces "
        "small [5e-05; inference-free: 0]",
        least=0,
    )
    passage_flops: float | None = help_field(None, "the same of the other texts [3e-05]", least=0)
    widths: str | None = help_field(
        None,
        "similarity, pairs, triplets, texts: also train shorter vectors, the first numbers of the "
        "full ones, such as 192,96 (Matryoshka); with --vectors tokens their width [128]",
    )
    merge: str = help_field(
        "best",
        "how several seeds become one model: best (by its score on the dev data), or average (of their weights, below "
        "500 examples also of their linear start, unless the best is significantly better); auto: average below 10,000 "
        "examples with --start linear",
    )
    refit: bool = help_field(
        False,
        "without a dev file: score the model on held-out examples, then train it again on all examples; "
        "auto: yes below 500 examples",
    )
    baselines: bool = help_field(True, "first score cheap baselines on the dev examples, for comparison; takes seconds")

    def __post_init__(self) -> None:
        positive = ("batch_size", "epochs", "micro_tokens", "bilstm_cells", "decoder_layers", "decoder_rate", "scale")
        for name in (*positive, "margin", "lora_rank", "lora_alpha"):
            require_number(name, getattr(self, name), above=0)
        for name in ("mix_penalty", "reinit_layers", "language_model_loss"):
            require_number(name, getattr(self, name), least=0)
        require_limits(self)
        for name in ("bilstm_cells", "bilstm_layers", "normalize_layers", "mix_penalty"):
            require_other(
                not getattr(self, name) or self.reads in READERS,
                f"--{name.replace('_', '-')}",
                f"--reads {' or '.join(READERS)}",
            )
        for name, known in (
            ("freeze", FREEZE),
            ("reads", (*READS, PROBE)),
            ("start", STARTS),
            ("decoder_start", DECODER_STARTS),
            ("class_weights", CLASS_WEIGHTS),
            ("merge", MERGES),
        ):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                for label, weight in value.items():
                    require_number(f"the weight of {label!r} in {name}", weight, above=0)
                require(bool(value), expected=f"labels with their weights as {name}", found="none", fix="name some")
            elif value is not None:
                require_known(name, value, known)
        for name, expected in (
            ("reinit_layers", "re-initialized layers that are trained"),
            ("gradual_unfreezing", "gradual unfreezing of layers that are trained"),
        ):
            fix = f"leave one of {'reads' if self.reads in READERS else 'freeze'} and {name} out"
            is_trained = self.freeze != "body" or not getattr(self, name)
            require(is_trained, expected=expected, found="a frozen body", fix=fix)
        for name in ("lora_alpha", "lora_targets"):
            require_other(
                getattr(self, name) is None or self.lora_rank is not None,
                f"--{name.replace('_', '-')}",
                "--lora-rank",
            )
        if self.lora_rank is not None:
            is_frozen = self.freeze == "body"
            changed = {
                f"--reads {self.reads}, which reads an encoder that is not trained": is_frozen
                and self.reads in READERS,
                "--freeze body": is_frozen,
                "--reinit-layers": self.reinit_layers,
                "--gradual-unfreezing": self.gradual_unfreezing,
            }
            refused = next((name for name, is_given in changed.items() if is_given), None)
            require(
                refused is None,
                expected="an encoder that only its adapter changes, with --lora-rank",
                found=str(refused),
                fix="leave one of the two out",
            )
        require_number("layer_decay", self.layer_decay, above=0, most=1)
        require_number("dropout", self.dropout, least=0, below=1)
        require(
            not self.language_model_loss or (self.freeze != "body" and self.reads not in (APART, *READERS)),
            expected="a body that is trained on whole rows, for a language-model loss",
            found=f"reads {self.reads}" if self.reads in (APART, *READERS) else "freeze body",
            fix="leave one of the two out",
        )
        require(
            self.precision != "fp16",
            expected="bf16 or fp32 for training",
            found="fp16, whose gradients underflow without loss scaling",
            fix="use --precision bf16 or fp32",
        )

    @property
    def lora_scale(self) -> float:
        """The factor on the product of the two matrices of an adapter."""
        assert self.lora_rank is not None, "there is an adapter"
        return 2.0 if self.lora_alpha is None else self.lora_alpha / self.lora_rank

    def steps(self, units: int) -> int:
        """The number of optimizer steps for a training set of that many units; at least one."""
        return max(1, int(units / self.batch_size * self.epochs))


def may_start_linear(kind: str, chosen: Mapping[str, Any], *, own_head: bool) -> bool:
    """Whether the automatic recipe may fit the new layer of a task to vectors, as far as the chosen settings tell."""
    is_fixed = (
        chosen.get("freeze") == "body" or chosen.get("reinit_layers") or chosen.get("reads") in (CONCAT, *READERS)
    )
    return kind in LINEAR_KINDS and not own_head and not is_fixed


def require_agreement(keep: str | None, *, start: str | None, refit: bool) -> None:
    """Checks which model is kept against the settings that it depends on; None for one that is not known yet."""
    require_other(
        not refit or keep != "best",
        "--refit",
        "--keep last or auto, as a training on all examples has no dev data to choose by",
    )
    require_other(
        keep != "auto" or start in (None, "linear"),
        "--keep auto",
        "--start linear, as it compares the trainings with their start",
    )


def of_the_paper(task: str) -> dict[str, float]:
    """The settings that the paper used for a named task where they differ from the defaults.

    Source: Devlin et al. (2018), sections 4.3 (SQuAD 2.0) and 4.4 (SWAG).

    >>> of_the_paper("squad2"), of_the_paper("swag"), of_the_paper("cola")
    ({'batch_size': 48, 'epochs': 2.0}, {'batch_size': 16, 'learning_rate': 2e-05}, {})
    """
    return dict(_OF_THE_PAPER.get(task, {}))


def against_collapse(*, learning_rate: float, epochs: float, bias_correction: bool) -> str:
    """What to try after every training collapsed, without what was already tried.

    Args:
        learning_rate: the lowest peak rate that was tried.
        epochs: the highest number of epochs that was tried.
        bias_correction: whether the moments were corrected.

    >>> against_collapse(learning_rate=5e-5, epochs=3.0, bias_correction=True)
    'try a learning rate below 5e-05, more epochs than 3, or a model that was pre-trained longer'
    """
    corrected = "" if bias_correction else "--bias-correction (without it the first steps are 2 to 6 times as long), "
    return (
        f"try a learning rate below {learning_rate:g}, {corrected}more epochs than {epochs:g}, or a model that was "
        "pre-trained longer"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """Learning rate, schedule, evaluation and checkpoints of fine-tuning; the steps follow from the epochs.

    Ranges are checked when the values become `TrainSettings`.

    Raises:
        ConfigError: a number is infinite or NaN.
    """

    seed: int = help_field(1, "seed of the first training; the others use the following numbers")
    learning_rate: float = help_field(
        5e-5,
        "peak learning rate; 2018: for swag 2e-5; auto: 0.0384 / width of the model, 0.128 / width "
        "after little pre-training",
    )
    warmup_share: float = help_field(0.1, "fraction of the steps with a rising learning rate")
    schedule: str = help_field(
        "tf_linear", "tf_linear (2018), hf_linear (auto), constant or slanted_triangular (ULMFiT)"
    )
    beta1: float = help_field(0.9, "decay rate of the first moment; ulmfit: 0.7")
    beta2: float = help_field(0.999, "decay rate of the second moment; ulmfit: 0.99")
    weight_decay: float = help_field(0.01, "decoupled weight decay, not applied to biases and layer norms")
    epsilon: float = help_field(1e-6, "added to the square root of the second moment")
    bias_correction: bool = help_field(False, "use Adam's bias correction; the 2018 code does not; auto: yes")
    clip_norm: float = help_field(1.0, "maximum global norm of the gradient")
    evaluate_every: int | None = help_field(None, "steps between evaluations on dev data [an epoch]")
    keep: str = help_field(
        "best",
        "the model to keep: best (by evaluation on the dev data), last, auto (the best of the last ones, their "
        "average, their linear start and a bag of words, by a paired test on the dev data, of which each label has a "
        "tenth if it is held out) or bag (a bag of words, and nothing is trained); --recipe auto: last below 10,000 "
        "examples",
    )
    patience: int | None = help_field(None, "stop after this many evaluations without improvement")
    shard: bool = help_field(
        False,
        "with several processes: they share every step, and each holds a part of parameters, gradients and moments, "
        "for models too large for one (FSDP2)",
    )
    activation_checkpointing: bool = help_field(
        False,
        "recompute the states inside each layer in the backward pass instead of storing them: less memory, about a "
        "third more time, the same losses",
    )
    log_every: int = help_field(10, "steps between log lines in metrics.jsonl")
    save_every: int | None = help_field(None, "steps between checkpoints [by time only]")
    save_minutes: float | None = help_field(5.0, "minutes between checkpoints")
    track: str | None = optional(None, TRACK)
    tensorboard: bool = optional(False, TENSORBOARD)

    def __post_init__(self) -> None:
        require_limits(self)
        require_known("keep", self.keep, KEEPS)
        require_other(self.keep == "best" or self.patience is None, "--patience", "--keep best")
        self.training(_MANY_STEPS, 1, None)  # what the loop refuses is refused before examples are read

    def training(self, steps: int, epoch: int, keep_best: str | None) -> TrainSettings:
        """The settings of the training loop.

        Args:
            steps: the steps of the whole training.
            epoch: the steps per epoch; by default the dev set is scored after each epoch.
            keep_best: the score by which the best model is selected; None without dev data.

        Raises:
            ConfigError: a value is invalid.
        """
        keep_best = keep_best if self.keep == "best" else None
        values = {name: value for name, value in to_dict(self).items() if name != "keep"} | {
            "steps": steps,
            "evaluate_every": max(1, min(epoch, steps)) if self.evaluate_every is None else self.evaluate_every,
            "evaluate_at_start": False,
            "keep_best": keep_best,
            "patience": self.patience if keep_best else None,
            "keep_checkpoints": 1,
        }
        return TrainSettings(**values)
