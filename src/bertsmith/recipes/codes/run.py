"""Training a model of visits: from a folder of codes to a run folder.

::

    RUN/model/           the model of the best evaluation
    RUN/results.json     its scores on the test subjects, next to those of simple baselines
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.progress import counted, short_repr, tell
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.storage.files import digest_file, read_json, write_json
from bertsmith.models.encoders.g_bert import GBertConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.weakness import TEST, weakness_of
from bertsmith.recipes.codes.baselines import METRICS, MODEL, Visits, baselines, compared
from bertsmith.recipes.codes.encoding import EncodedSubjects, encode_subjects
from bertsmith.recipes.codes.folder import SUMMARY, VISITS, read_codes_folder
from bertsmith.recipes.codes.model_folder import TASK, CodesModel, new_model, write_codes_model
from bertsmith.recipes.codes.request import TrainCodesRequest
from bertsmith.recipes.codes.settings import CodesSettings
from bertsmith.recipes.codes.workload import CodesTraining
from bertsmith.text.codes import tree as trees
from bertsmith.text.codes import vocabulary as vocabularies
from bertsmith.text.codes.graph import graphs_of
from bertsmith.text.codes.tree import CodeTree
from bertsmith.text.codes.visits import Subject, split_subjects
from bertsmith.text.codes.vocabulary import CodeVocabulary
from bertsmith.training.loop.loop import TrainResult, train
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_request import request_of_run

RESULTS = "results.json"


@dataclasses.dataclass(frozen=True)
class CodesResult:
    """The result of a training.

    Attributes:
        training: what the training loop returns, with the scores on the dev subjects.
        results: the scores on the test subjects of the model and of the baselines, as in RUN/results.json.
    """

    training: TrainResult
    results: Mapping[str, Any]

    __repr__ = short_repr


@takes(TrainCodesRequest)
def train_codes(request: TrainCodesRequest) -> CodesResult:
    """The result of training a model of visits, and its scores on held-out subjects; OUT/model is the model.

    Raises:
        BertsmithError: a file, a setting or the run folder is invalid; the message says which.
        KeyboardInterrupt: interrupted; a checkpoint was written.
    """
    if request.codes is None:
        request = request_of_run(
            TrainCodesRequest, request.out, name="codes", task=TASK, command="codes train", settings=CodesSettings
        )
    assert request.codes is not None, "a run has them"
    settings, path = request.part(CodesSettings), Path(request.codes)
    Rank.from_environment().require_alone("a model of visits")
    device = choose(settings.device, "fp32").torch_device
    with Run.open(request.out, resume=request.resume) as run:
        folder = read_codes_folder(path)
        kinds = kinds_of(folder.vocabulary, settings)
        vocabulary = folder.vocabulary.part(kinds)
        train_subjects, dev_subjects, test_subjects = divided(folder.subjects, settings, request.seed)
        labels = labels_of(train_subjects, vocabulary, settings)
        encoded = [
            encode_subjects(part, vocabulary, kinds, labels) for part in (train_subjects, dev_subjects, test_subjects)
        ]
        tree = folder.tree.part(code.key for code in vocabulary.codes) if settings.tree else CodeTree({})
        config = config_of(settings, vocabulary, tree, kinds, len(labels))
        training = request.training(0)
        workload = CodesTraining(
            new_model(config, vocabulary, tree, kinds, training.seed),
            encoded[0],
            encoded[1],
            vocabulary,
            kinds,
            device,
            settings,
            training.seed,
        )
        _require_work(workload, encoded[2], settings)
        workload.start_from_frequencies()
        training = request.training(settings.rounds * sum(workload.steps_of_round))
        record = {
            "task": TASK,
            "codes": str(path),
            "model": to_dict(config),
            "run": to_dict(settings),
            "train": to_dict(training),
            "runtime": {"device": device.type},
        }
        names = [VISITS, vocabularies.FILE, SUMMARY, *([trees.FILE] if len(folder.tree) else [])]
        digests = {name: digest_file(path / name) for name in names}
        run.start(record, digests, may_change=("codes",), request=request)
        tell(
            f"{counted(len(train_subjects), 'training subject')} with {len(workload.visits):,} visits, "
            f"{sum(map(len, workload.subjects)):,} of them to predict; {len(dev_subjects):,} dev and "
            f"{len(test_subjects):,} test subjects; {counted(config.num_parameters(heads=True), 'parameter')}"
        )
        results: dict[str, Any] = {}

        def write_model(folder_of_model: Path, result: TrainResult) -> None:
            scored, threshold = score(workload, encoded[2], settings, len(vocabulary), training.seed)
            scored["codes_not_in_training"] = missing_codes(test_subjects, encoded[2], settings)
            results.update(scored)
            metadata = ModelMetadata(
                trained_on=digests,
                training={"kept": "the best evaluation", "rounds": settings.rounds},
                steps=result.kept_step,
                tokens=result.kept_tokens,
                scores={
                    **result.scores,
                    **{TEST + name: scored["systems"][MODEL][name]["value"] for name in METRICS},
                },
                baseline=best_baseline(scored),
            )
            codes = CodesModel(
                model=workload.model,
                vocabulary=vocabulary,
                tree=tree,
                kinds=kinds,
                wanted=settings.wanted_kind,
                labels=tuple(labels),
                threshold=threshold,
                pretrained=settings.pretraining_epochs > 0,
                first_visits=settings.first_visits,
                weakness=weakness_of(metadata),
            )
            write_codes_model(folder_of_model, codes, metadata, card_of(codes, scored))
            write_json(run.path / RESULTS, scored)

        result = train(workload, training, run.folder, write_model=write_model)
        return CodesResult(result, results or read_json(run.path / RESULTS))


def kinds_of(vocabulary: CodeVocabulary, settings: CodesSettings) -> tuple[str, ...]:
    """The kinds of codes that a model reads."""
    if settings.given_kind is not None and settings.wanted_kind is not None:
        for kind in (settings.given_kind, settings.wanted_kind):
            vocabulary.require_kind(kind)
        return settings.given_kind, settings.wanted_kind
    kinds = vocabulary.kinds
    require(
        len(kinds) <= 2,
        expected="codes of one or two kinds, to predict the next visit",
        found=f"{len(kinds)}: {', '.join(kinds)}",
        fix="build the folder from events of two kinds, or name two with --given and --wanted",
    )
    return kinds


def divided(subjects: Sequence[Subject], settings: CodesSettings, seed: int) -> tuple[list[Subject], ...]:
    """The training, dev and test subjects; those with one visit, if nothing is predicted of it, are for training."""
    at_least = 1 if settings.first_visits else 2
    several = [subject for subject in subjects if len(subject.visits) >= at_least]
    require(
        len(several) > 2,
        expected="subjects with several visits, some of which are held out",
        found=counted(len(several), "subject"),
        fix="add subjects whose visits follow each other, or --first-visits with --wanted",
    )
    dev, test, _ = split_subjects(several, [settings.dev_share, settings.test_share], seed)
    held_out = {subject.name for subject in (*dev, *test)}
    return [subject for subject in subjects if subject.name not in held_out], dev, test


def labels_of(subjects: Sequence[Subject], vocabulary: CodeVocabulary, settings: CodesSettings) -> list[int]:
    """The ids of the codes that are predicted: those of later training visits, of the wanted kind if any."""
    first = 0 if settings.first_visits else 1
    codes = {
        vocabulary.id(code)
        for subject in subjects
        for visit in subject.visits[first:]
        for code in visit.codes
        if settings.wanted_kind in (None, code[0])
    }
    labels = sorted(codes - {vocabulary.unk_id})
    require(
        bool(labels),
        expected="codes to predict in the visits of the training subjects"
        + (f", of the kind {settings.wanted_kind!r}" if settings.wanted_kind else ""),
        found="none",
        fix="add visits, or lower --minimum-count of `codes build`",
    )
    return labels


def config_of(
    settings: CodesSettings, vocabulary: CodeVocabulary, tree: CodeTree, kinds: Sequence[str], labels: int
) -> GBertConfig:
    """The shape of the model."""
    graphs = graphs_of(tree, vocabulary, kinds)
    return GBertConfig(
        vocab_size=len(vocabulary),
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.width,
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=min(0.1, settings.dropout),
        initializer_range=settings.width**-0.5,
        type_vocab_size=len(kinds),
        graphs=len(graphs),
        graph_codes=sum(len(graph.ids) for graph in graphs),
        graph_nodes=sum(graph.nodes for graph in graphs),
        graph_heads=settings.heads,
        num_labels=labels,
    )


def score(
    workload: CodesTraining, test: EncodedSubjects, settings: CodesSettings, size: int, seed: int
) -> tuple[dict[str, Any], float]:
    """The scores on the test subjects of the model and of the baselines, and the threshold of the model."""
    workload.model.eval()
    chances: dict[str, tuple[Any, Any]] = {}
    sets, of_model = [], []
    for data in (workload.dev, test):
        examples = workload.examples(data)
        scores, targets = workload.scores(data, examples)
        of_model.append(1 / (1 + np.exp(-scores)))
        sets.append(Visits(data, examples, targets > 0))
    chances[MODEL] = (of_model[0], of_model[1])
    if settings.baselines:
        of_training = [example for of_subject in workload.subjects for example in of_subject]
        gold = np.zeros((len(of_training), workload.model.config.num_labels), dtype=np.bool_)
        for number, (subject, visit) in enumerate(of_training):
            gold[number, workload.train.targets[subject][visit]] = True
        train_visits = Visits(workload.train, of_training, gold)
        simple = baselines(train_visits, sets, size, recommends=settings.recommends, seed=seed)
        chances |= {name: (of_dev, of_test) for name, (of_dev, of_test) in simple.items()}
    results, thresholds = compared(chances, *sets)
    return results, thresholds[MODEL]


def best_baseline(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """The baseline that the model was tested against, as its metadata record it; None without one."""
    if (name := results.get("best_baseline")) is None:
        return None
    return {
        "name": name,
        "metric": f"{TEST}f1",
        "score": results["systems"][name]["f1"]["value"],
        "examples": results["visits"],
        "p_value": results["against_best_baseline"]["f1"]["p_value"],
    }


def missing_codes(subjects: Sequence[Subject], data: EncodedSubjects, settings: CodesSettings) -> int:
    """How many codes of the visits of subjects no system can predict: no training visit has them."""
    first, count = 0 if settings.first_visits else 1, 0
    for subject, targets in zip(subjects, data.targets, strict=True):
        for visit, known in list(zip(subject.visits, targets, strict=True))[first:]:
            wanted = [code for code in visit.codes if settings.wanted_kind in (None, code[0])]
            count += len(wanted) - len(known)
    return count


def card_of(codes: CodesModel, results: Mapping[str, Any]) -> str:
    """The model card."""
    config, count = codes.model.config, sum(parameter.numel() for parameter in codes.model.parameters())
    does = f"recommends codes of the kind {codes.wanted!r}" if codes.wanted else "predicts the codes of the next visit"
    lines = [
        f"- {name}: Jaccard {of_system['jaccard']['value']:.4f}, PR-AUC {of_system['pr_auc']['value']:.4f}, "
        f"F1 {of_system['f1']['value']:.4f}"
        for name, of_system in results["systems"].items()
    ]
    return (
        "---\nlibrary_name: bertsmith\n---\n\n"
        f"# A model of visits that {does}\n\n"
        f"- It reads {' and '.join(codes.kinds)}: {len(codes.vocabulary.codes):,} codes; "
        f"it predicts {len(codes.labels):,}.\n"
        f"- {config.num_hidden_layers} layers, width {config.hidden_size}; "
        f"{count:,} parameters, {count - config.num_parameters(heads=True):,} of them of the heads of pre-training; "
        f"{config.graph_nodes:,} nodes in trees.\n"
        f"- A code is predicted from a probability of {codes.threshold:.2f}.\n"
        f"\n## Scores on {results['visits']:,} visits of {results['subjects']:,} held-out subjects\n\n"
        + "\n".join(lines)
        + (f"\n\n**{codes.weakness[0].upper()}{codes.weakness[1:]}.**" if codes.weakness else "")
        + "\n\n## Use\n\n`bertsmith codes predict EVENTS --model DIR`; EVENTS is a table like that of its training.\n"
    )


def _require_work(workload: CodesTraining, test: EncodedSubjects, settings: CodesSettings) -> None:
    """Checks that there is something to learn and something to score."""
    wanted = (
        f"visits with codes of the kinds {settings.given_kind!r} and {settings.wanted_kind!r}"
        if settings.wanted_kind
        else "visits"
    )
    require(
        bool(workload.subjects),
        expected=f"{wanted} after other visits of a training subject",
        found="none",
        fix="check the kinds and the times of the events, or add --first-visits",
    )
    for part, examples in (("dev", workload.dev_examples), ("test", workload.examples(test))):
        require(
            bool(examples),
            expected=f"{wanted} after other visits of a {part} subject",
            found="none",
            fix=f"raise --{part}-share, or add subjects",
        )
    if settings.pretraining_epochs:
        require(
            bool(workload.visits),
            expected="subjects with a single visit for --pretrain-on single",
            found="none",
            fix="use --pretrain-on all",
        )
