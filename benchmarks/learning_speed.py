"""What a model has learned after some processor seconds of pre-training: ours against run_mlm.py of transformers.

    python benchmarks/learning_speed.py --corpus docstrings --size tiny --minutes 10 --data DIR
    python benchmarks/learning_speed.py --corpus gutenberg --size mini --minutes 60 --data DIR --arms hf,auto
    python benchmarks/learning_speed.py ... --arms ltg-bert@1e-2,gpt-bert@1e-2 --peers ltg-bert=DIR,gpt-bert=DIR

All arms train a new model of the same shape and vocabulary (8,000 pieces) on the same corpus in one thread:

* `hf`: run_mlm.py with the default arguments of its Trainer (`peer_pretraining.py`);
* `hf-tuned`: the same with learning rate 1e-3, 6 % warm-up and 32 rows per step;
* `modernbert@RATE`: the recipe of ModernBERT with its class in transformers (`peer_pretraining.py`);
* `2018` and `auto`: `pretrain(corpus, out, recipe=...)` of bertsmith;
* `ltg-bert@RATE`, `gpt-bert@RATE`, `gpt-bert-half@RATE`, `cramming@RATE`: recipes for little text by the code of their
  own repositories, whose checkouts --peers names (`anchor_pretraining.py`); the rate is part of the name of the arm.

The budget is in processor seconds (`time.process_time`, all threads) from the call that trains to the end of its last
step: whatever prepares the model counts, evaluations and writing the model do not, nor does encoding the text, which is
done once for all. Each arm first runs a few steps to determine how many fit into the budget, so that its schedule ends
there; since the steps of an anchor differ, these are from all parts of its run. Schedules depend on the length of the
run, so each share of the budget is a separate run; what `auto` reaches in a share of the seconds can then be compared
with what a peer reaches in all of them.

Every model is scored by the same code (`model_scores.py`): the loss on the same held-out rows with the same masks
(15 %, 80/10/10), next to that of a unigram and a bigram model, and the accuracy of logistic regression on its frozen
mean vectors, of the last layer and of all layers, with 5,000 rows of SST-2 and of TREC (with --data).

Each run appends a line to results/NAME.jsonl. Runs that are already there are skipped, so an interrupted benchmark
resumes. The table, the plot and the summary are rewritten after each run.
"""

import argparse
import contextlib
import dataclasses
import inspect
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.update({"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})

import torch
from anchor_models import AnchorEncoder, AnchorModel, check_scores
from anchor_pretraining import ANCHORS, pretrain_anchor
from harness import RESULTS, machine, machine_label
from learning_speed_report import OF_ALL, append_line, read_lines, report
from model_scores import HeldOutRows, ProbeTask, baseline_scores, folder_scores, model_scores, probe_tasks
from peer_pretraining import RECIPES, GroupedTexts, peer_recipe, pretrain_peer

from bertsmith.app.library.training import pretrain
from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import atomic_file, digest_file, read_json, write_json
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.docstrings import docstring_documents
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.training.loop.trainer import Trainer

VOCABULARY_SIZE = 8000
HELD_OUT = {"docstrings": 0.04, "gutenberg": 0.02}  # of the documents
OURS = ("2018", "auto")
ARMS = ("hf", "hf-tuned", *OURS)  # without checkouts or a rate
TRIAL_SHARE, LEAST_TRIAL_SECONDS = 0.03, 2.0  # of the budget
FIRST_GUESS = 1000  # steps
TOLERANCE = 0.1  # of the budget


class EnoughSeconds(BaseException):
    """Ends a trial; not an Exception, so that no code in between treats it as a failure."""


class Clock:
    """Processor seconds when training is called, before its first step and after each step, without evaluations.

    Args:
        limit: the seconds of steps after which a trial ends.
    """

    def __init__(self, limit: float | None = None) -> None:
        self.limit, self.stamps, self._aside = limit, list[float](), 0.0

    def mark(self) -> None:
        """Notes the time; raises EnoughSeconds if the limit is reached after at least two steps."""
        self.stamps.append(time.process_time() - self._aside)
        if self.limit is not None and len(self.stamps) > 3 and self.stamps[-1] - self.stamps[1] > self.limit:
            raise EnoughSeconds

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Does not count the block."""
        start = time.process_time()
        try:
            yield
        finally:
            self._aside += time.process_time() - start

    @property
    def seconds(self) -> float:
        """The preparation of the model and all steps."""
        return self.stamps[-1] - self.stamps[0]

    def steps_in(self, budget: float) -> int:
        """The number of steps that fit into a budget; the first one also prepares what later ones use."""
        first, others = self.stamps[2] - self.stamps[0], self.stamps[-1] - self.stamps[2]
        return max(2, 1 + round((budget - first) / (others / (len(self.stamps) - 3))))


class Bench:
    """Corpus, rows and tasks of a benchmark, and one run at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        folder = options.work / f"{options.corpus}"
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder / "corpus"
        if not self.folder.exists():
            make_corpus(options, folder)
        self.corpus = Corpus.open(self.folder)
        self.digest = digest_file(self.folder / "corpus.json")
        self.held_out = HeldOutRows.of(self.corpus, length=options.length, rows=options.rows)
        self.tasks: dict[str, ProbeTask] = {} if options.data is None else probe_tasks(options.data)
        self.config = BertConfig.named(options.size, vocab_size=len(self.corpus.vocabulary))
        self._grouped: GroupedTexts | None = None
        self._planned: dict[tuple[str, Fraction], int] = {}
        self._shape: dict[str, str] = {"size": options.size}

    def take_shape(self, config: BertConfig) -> None:
        """Trains models of this shape from now on; `auto` alone."""
        # Several processes may share the folder of the corpus.
        path = self.folder.parent / f"config-{config.num_hidden_layers}x{config.hidden_size}.json"
        write_json(path, config.to_dict())
        self.config, self._shape, self._planned = config, {"config": str(path)}, {}

    def run(self, arm: str, share: Fraction, seed: int, steps: int | None) -> dict[str, Any]:
        """The line of one run.

        Args:
            steps: their number, if another seed has already determined it.
        """
        budget = float(share) * self.options.minutes * 60
        steps = steps or self._planned.get((arm, share)) or self._plan(arm, budget)
        self._planned[arm, share] = steps
        with tempfile.TemporaryDirectory() as folder:
            clock, started = Clock(), time.perf_counter()
            model = self.train(arm, steps, seed, Path(folder), clock)
            wall = time.perf_counter() - started
            scores = {**self.scores(model), "settings": self._settings(arm, model)}
        if abs(clock.seconds / budget - 1) > TOLERANCE:
            print(f"  note: the steps took {clock.seconds:.1f} s of a budget of {budget:.1f} s")
        return {
            **self.key(arm, share, seed),
            "steps": steps,
            "budget_seconds": round(budget, 2),
            "seconds": round(clock.seconds, 2),
            "wall_seconds": round(wall, 2),
            "load_average": round(os.getloadavg()[0], 2),
            **scores,
        }

    def key(self, arm: str, share: Fraction, seed: int) -> dict[str, Any]:
        """What distinguishes a run from all others in the file."""
        values = vars(self.options)
        fixed = {name: values[name] for name in ("corpus", "size", "minutes", "length", "rows", "precision")}
        recipe = arm if arm not in OURS or takes_recipe() else None
        return {**fixed, "corpus_digest": self.digest, "arm": arm, "recipe": recipe, "share": str(share), "seed": seed}

    def scores(self, model: Path | AnchorModel) -> dict[str, Any]:
        """All scores of a model."""
        with quiet():
            if isinstance(model, Path):
                scores, encoder = folder_scores(self.held_out, model), model
            else:
                scores, encoder = model_scores(self.held_out, model), AnchorEncoder(model, self.corpus.tokenizer)
                check_scores(model, self.held_out, scores["loss"])
            probes = {
                f"{name}{ending}": task.accuracy(encoder, all_layers=bool(ending))
                for name, task in self.tasks.items()
                for ending in ("", " all layers")
            }
            return {**scores, "probes": probes}

    def untrained_scores(self) -> dict[str, Any]:
        """The scores of a model with random parameters."""
        with tempfile.TemporaryDirectory() as folder:
            return self.scores(self._base(Path(folder)))

    def train(self, arm: str, steps: int, seed: int, folder: Path, clock: Clock) -> Path | AnchorModel:
        """The model of an arm after some steps, or its folder."""
        if is_anchor(arm):
            return pretrain_anchor(
                arm,
                self.options.peers,
                self.config,
                self.corpus,
                steps=steps,
                seed=seed,
                precision=self.options.precision,
                is_trial=clock.limit is not None,
                mark=clock.mark,
            )
        if recipe := peer_recipe(arm):
            if self._grouped is None:
                self._grouped = GroupedTexts(self.corpus, self.options.length)
            base, out = self._base(folder / "base"), folder / "model"
            precision = self.options.precision if recipe.is_modernbert else "fp32"
            pretrain_peer(
                self._grouped, base, out, recipe, steps=steps, seed=seed, mark=clock.mark, precision=precision
            )
            return out
        settings: dict[str, Any] = {
            **self._shape,
            "steps": steps,
            "seed": seed,
            "device": "cpu",
            "precision": self.options.precision,
            "evaluate_every": steps + 1,
            "evaluate_at_start": False,
            "evaluation_rows": 1,
            "save_minutes": None,
        }
        if takes_recipe():
            settings["recipe"] = arm
        with quiet(), timed_steps(clock):
            pretrain(self.folder, folder / "run", **settings)
        return folder / "run" / "model"

    def _settings(self, arm: str, model: Path | AnchorModel) -> dict[str, Any]:
        """The settings with which an arm trained a model, defaults included, without folders of here."""
        if isinstance(model, AnchorModel):
            folder = self.options.peers[ANCHORS[arm.partition("@")[0]][0]]
            return {"model": model.settings, "commit": git_commit(folder)}
        if recipe := peer_recipe(arm):
            return dataclasses.asdict(recipe)
        recorded = read_json(model.parent / "settings.json")["settings"]
        if recorded["run"]["config"] is not None:
            recorded["run"]["config"] = Path(recorded["run"]["config"]).name
        return {name: recorded[name] for name in ("run", "data", "train", "runtime")}

    def _plan(self, arm: str, budget: float) -> int:
        """The number of steps that fit into a budget, from the beginnings of two runs.

        The second run is planned with the number that the first one found, because a recipe may depend on it.
        """
        steps, limit = FIRST_GUESS, max(LEAST_TRIAL_SECONDS, TRIAL_SHARE * budget)
        for _ in range(2):
            clock = Clock(limit)
            with tempfile.TemporaryDirectory() as folder, contextlib.suppress(EnoughSeconds):
                self.train(arm, steps, 0, Path(folder), clock)
            steps = clock.steps_in(budget)
        return steps

    def _base(self, folder: Path) -> Path:
        """A folder with the shape of the models and the tokenizer."""
        save_pretrained(
            folder,
            untrained(self.config, 0),
            self.corpus.tokenizer,
            ModelMetadata.from_dict({"task": "none"}),
            replace=True,
        )
        return folder


@contextlib.contextmanager
def timed_steps(clock: Clock) -> Iterator[None]:
    """Marks the start and the steps of a training of bertsmith on the clock, and sets its evaluations aside."""
    plans, evaluate = Trainer.plans, Trainer.evaluate

    def marked(trainer: Trainer, steps: Any) -> Iterator[Any]:
        with contextlib.closing(plans(trainer, steps)) as inner:
            clock.mark()
            for item in inner:
                yield item
                clock.mark()

    def uncounted(trainer: Trainer) -> dict[str, float]:
        with clock.aside():
            return evaluate(trainer)

    clock.mark()
    with mock.patch.object(Trainer, "plans", marked), mock.patch.object(Trainer, "evaluate", uncounted):
        yield


def git_commit(folder: Path) -> str:
    """The commit of a checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def takes_recipe() -> bool:
    """Whether `pretrain` has recipes by name; without them both of our arms are the recipe of 2018."""
    return "recipe" in inspect.signature(pretrain).parameters


def make_corpus(options: argparse.Namespace, folder: Path) -> None:
    """Builds the corpus in FOLDER/corpus, with a vocabulary of its own."""
    if options.corpus == "gutenberg":
        if options.data is None:
            sys.exit(
                "expected --data with the folder pretrain_gutenberg100 for --corpus gutenberg; found none; name it"
            )
        texts = [
            path
            for path in sorted((options.data / "pretrain_gutenberg100").glob("*.txt"))
            if not path.name.startswith("README")
        ]
    else:
        texts = [folder / "docstrings.txt"]
        if not texts[0].exists():
            with atomic_file(texts[0]) as file, contextlib.closing(docstring_documents(workers=1)) as documents:
                for document in documents:
                    file.write("\n".join([*document.sentences, "", ""]).encode("utf-8"))
    rules = TextRules()
    tokenizer = WordPieceTokenizer(learn_vocabulary(count_files(texts, rules).total, VOCABULARY_SIZE), rules)
    build_corpus(texts, tokenizer, folder / "corpus", held_out=HELD_OUT[options.corpus], workers=1)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The parsed options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", choices=sorted(HELD_OUT), default="docstrings")
    parser.add_argument("--size", default="tiny", help="model size [tiny]")
    parser.add_argument("--minutes", type=float, default=10.0, help="the full budget, in processor minutes [10]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS), help=f"[{','.join(ARMS)}]")
    parser.add_argument(
        "--peers",
        type=lambda text: {part.partition("=")[0]: Path(part.partition("=")[2]) for part in text.split(",")},
        default={},
        help="checkouts of the repositories of the anchors, ltg-bert=FOLDER,gpt-bert=FOLDER,cramming=FOLDER",
    )
    parser.add_argument("--shares", type=_shares, default=_shares("1/12,1/6,1/3,1/2,1"), help="of the budget, for auto")
    parser.add_argument("--other-shares", type=_shares, default=_shares("1"), help="the same for all other arms [1]")
    parser.add_argument("--length", type=int, default=128, help="tokens of held-out rows and of the peer's rows [128]")
    parser.add_argument("--rows", type=int, default=512, help="held-out rows, at most [512]")
    parser.add_argument("--precision", default="fp32", help="of all but run_mlm.py, which trains in fp32 [fp32]")
    parser.add_argument("--data", type=Path, help="folder with glue/SST-2, cls/nltk/qc and pretrain_gutenberg100")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "bertsmith_learning_speed",
        help="folder that keeps the corpus from one call to the next",
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(arm for arm in options.arms if arm not in ARMS and not is_anchor(arm) and not is_peer(arm)):
        known = ", ".join([*ARMS, *(f"{name}@RATE" for name in (*RECIPES, *ANCHORS))])
        parser.error(f"expected arms out of {known}; found {', '.join(unknown)}; correct --arms")
    needed = {ANCHORS[arm.partition("@")[0]][0] for arm in options.arms if is_anchor(arm)}
    if missing := sorted(name for name in needed if not options.peers.get(name, Path("-")).is_dir()):
        parser.error(f"expected folders with checkouts of {', '.join(missing)}; found none; name them with --peers")
    return options


def is_anchor(arm: str) -> bool:
    """Whether an arm is a known anchor with a rate, such as ltg-bert@1e-2."""
    return _has_rate(arm, ANCHORS)


def is_peer(arm: str) -> bool:
    """The same for recipes with classes of transformers."""
    return _has_rate(arm, RECIPES)


def _has_rate(arm: str, names: Iterable[str]) -> bool:
    name, _, rate = arm.partition("@")
    return name in names and re.fullmatch(r"\d+(\.\d+)?(e-\d+)?", rate) is not None


def _shares(text: str) -> list[Fraction]:
    return sorted(Fraction(part) for part in text.split(","))


def main() -> None:
    """Runs what is missing, and writes table, plot and summary."""
    options = parse()
    torch.set_num_threads(1)
    described, bench = machine(), Bench(options)
    name = f"learning_speed_{options.corpus}_{options.size}_{options.minutes:g}-minutes_{machine_label(described)}"
    name += f"_torch-{torch.__version__}" + ("" if options.precision == "fp32" else f"_{options.precision}")
    path = RESULTS / f"{name}.jsonl"
    fixed = {key: value for key, value in bench.key("", Fraction(1), 0).items() if key in OF_ALL}
    lines = read_lines(path)
    if any({key: line[key] for key in fixed} != fixed for line in lines):
        sys.exit(f"expected runs on the same corpus and rows in {path.name}; found others; move that file away")
    if not any("references" in line for line in lines):
        references = {**baseline_scores(bench.held_out, bench.corpus), "untrained": bench.untrained_scores()}
        append_line(path, {**fixed, "machine": described, "references": references})
    cells = [
        (arm, share, seed)
        for seed, arm in itertools.product(range(1, options.seeds + 1), options.arms)
        for share in (options.shares if arm == "auto" else options.other_shares)
    ]
    for arm, share, seed in cells:
        key, lines = bench.key(arm, share, seed), read_lines(path)
        if any(key.items() <= line.items() for line in lines):
            continue
        same = (line["steps"] for line in lines if {**key, "seed": line.get("seed")}.items() <= line.items())
        line = bench.run(arm, share, seed, next(same, None))
        print({name: value for name, value in line.items() if name not in (*fixed, "settings")}, flush=True)
        append_line(path, line)
        report(name, path)
    report(name, path)


if __name__ == "__main__":
    main()
