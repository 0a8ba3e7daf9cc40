"""Architecture rules: which package may import which, where imports go, how long a file may be."""

import ast
import functools
import graphlib
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tasks.task_samples import write_base_model

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "bertsmith"
FILES = sorted(SOURCE.rglob("*.py"))

# Districts, and the floor of each. A module imports from lower floors and from its own district.
FLOORS = {"base": 0, "text": 1, "models": 2, "training": 3, "tasks": 3, "inference": 4, "recipes": 5, "app": 6}
SHORTEST, LONGEST = 40, 600  # lines of a file
TABLES = {
    "tasks/specs/kinds.py",
    "models/parts/part_names.py",
    "models/parts/head_inputs.py",
    "base/core/version.py",
}  # as short as what they list
STAND_INS = {"found", "given", "one", "own", "place", "thing", "what"}  # in place of the noun of the domain
PYTHON_FOLDERS = ("src", "tests", "benchmarks", "tools", "examples")
DEEPEST = 14  # modules in a chain of imports
NEVER_TORCH = ("text.", "tasks.metrics.", "tasks.datasets.", "inference.word_vectors.")
# Optional packages, which may not be installed: imported inside the functions that use them.
OPTIONAL = {
    "mlflow", "numba", "optuna", "rjieba", "tensorboard", "torch.utils.tensorboard", "onnx", "onnxruntime",
    "tokenizers", "wandb", "budoux", "h5py", "openpyxl", "faiss", "ray", "ray.data", "fsspec.core",
}  # fmt: skip
# Slow to import and rarely needed: imported inside the functions that use them.
SLOW = {
    "scipy.optimize", "scipy.special", "scipy.stats", "huggingface_hub",
    "scipy.linalg", "scipy.sparse", "sklearn.cluster", "threadpoolctl", "importlib.metadata", "packaging.requirements",
    "torch.distributed.device_mesh", "torch.distributed.fsdp", "torch.distributed.tensor",
    "bertsmith.app.library.index_models", "bertsmith.app.library.retrieval", "bertsmith.inference.predictors.zero_shot",
    "bertsmith.recipes.finetuning.baselines", "bertsmith.recipes.finetuning.cheaper",
    "bertsmith.recipes.finetuning.folds",
    "bertsmith.recipes.finetuning.linear_start", "bertsmith.recipes.adaptation.task_text",
    "bertsmith.recipes.finetuning.tuning", "bertsmith.recipes.finetuning.vector_workload",
    "bertsmith.inference.vectors.loading", "bertsmith.recipes.sentence_encoders.teacher",
    "bertsmith.recipes.sentence_encoders.hard_negatives",
    "bertsmith.inference.vectors.pictures", "bertsmith.inference.predictors.n_grams",
    "bertsmith.tasks.baselines.word_model",
    "bertsmith.inference.cluster.kept", "bertsmith.inference.cluster.predictions",
    "bertsmith.inference.cluster.vectors", "bertsmith.inference.cluster.words",
    # Rarely needed: a plain classification of single texts works without them.
    "bertsmith.base.pages.html", "bertsmith.base.storage.downloads", "bertsmith.base.storage.remote",
    "bertsmith.models.heads.head_blocks", "bertsmith.models.parts.earlier", "bertsmith.models.parts.layer_mix",
    "bertsmith.models.parts.local_attention", "bertsmith.models.parts.memory",
    "bertsmith.tasks.baselines.text_vectors", "bertsmith.tasks.datasets.hierarchy",
    "bertsmith.tasks.datasets.parquet_records", "bertsmith.tasks.datasets.records",
    "bertsmith.tasks.datasets.spreadsheets", "bertsmith.tasks.datasets.text_groups",
    "bertsmith.tasks.metrics.answers", "bertsmith.tasks.metrics.similarity", "bertsmith.tasks.metrics.vectors",
    "bertsmith.recipes.results.report", "bertsmith.tasks.specs.sentence_windows",
    "bertsmith.text.tokenizers.realign", "bertsmith.text.tokenizers.unigram",
    "matplotlib", "matplotlib.figure", "matplotlib.ticker",
    "safetensors.torch",
    "rich.console", "rich.live", "rich.text", "pyarrow", "pyarrow.parquet",
    # Only texts to write need these.
    "bertsmith.models.heads.decoder", "bertsmith.models.parts.source", "bertsmith.tasks.encoding.generation",
    "bertsmith.tasks.metrics.bleu", "bertsmith.tasks.metrics.texts",
}  # fmt: skip
# What answers from an ONNX folder, without torch: these modules and all that they import at the top.
LIGHT = (
    "app.cli.entry", "app.cli.app", "app.library.lines", "app.library.loading", "app.library.model",
    "app.library.vector_files", "app.library.inspection", "app.library.prediction_tables", "app.server.process",
    "app.server.routes", "inference.predictors.n_grams",
)  # fmt: skip
LIGHT_PACKAGES = {
    "numpy",
    "pyarrow",
    "rich",
    "safetensors",
    "typer",
    "fastapi",
    "prometheus_client",
    "pydantic",
    "uvicorn",
}
DISTRIBUTION_NAMES = {"mlflow": "mlflow-skinny", "sklearn": "scikit-learn"}

MODULES = {
    ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): file for file in FILES
}


@functools.cache
def _imports(file: Path, *, for_types: bool = True) -> tuple[tuple[str, bool], ...]:
    """The modules that a file imports, each with whether the import is at the top level.

    Args:
        for_types: include imports under `if TYPE_CHECKING`, which never run.
    """
    tree = ast.parse(file.read_bytes())
    unused = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    result: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        if id(node) in unused and not for_types:
            continue
        if isinstance(node, ast.Import):
            result += ((alias.name, id(node) not in inner) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            base = node.module or ""
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                result.append((whole if whole in MODULES else base, id(node) not in inner))
    return tuple(result)


@functools.cache
def _loaded_with(module: str) -> frozenset[str]:
    """The modules and packages that are imported when a module of ours is: it, and all that it imports at the top."""
    result: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name not in result:
            result.add(name)
            if name in MODULES:
                left += [other for other, at_top in _imports(MODULES[name], for_types=False) if at_top]
    return frozenset(result)


@functools.cache
def _needs_torch(module: str) -> bool:
    return any(name.split(".")[0] == "torch" for name in _loaded_with(module))


def _district(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _room(module: str) -> str:
    """District and room, such as `text.corpus`; of a district itself, its name."""
    return ".".join(module.split(".")[1:3])


def _name(file: Path) -> str:
    return str(file.relative_to(SOURCE))


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_imports_go_down_or_stay_in_the_district(file: Path) -> None:
    district, *inner = file.relative_to(SOURCE).with_suffix("").parts
    if district in ("__init__", "__main__"):
        return
    assert district in FLOORS, f"{district} has no floor; give it one in FLOORS and in CONTRIBUTING.md"
    for module, _ in _imports(file):
        if module.startswith("bertsmith."):
            other = _district(module)
            assert other == district or FLOORS[other] < FLOORS[district], f"{_name(file)} may not import {module}"
        without_torch = ".".join([district, *inner]).startswith(NEVER_TORCH)
        assert not (without_torch and module.split(".")[0] == "torch"), f"{_name(file)} may not import torch"


def test_the_rooms_of_a_district_import_each_other_in_one_direction() -> None:
    graph: dict[str, set[str]] = {}
    for module, file in MODULES.items():
        if module.count(".") >= 2:
            rooms = {_room(other) for other, _ in _imports(file) if _district(other) == _district(module)}
            graph.setdefault(_room(module), set()).update(rooms - {_room(module)})
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError and names the rooms


@pytest.mark.parametrize("name", LIGHT)
def test_an_onnx_folder_answers_with_few_packages_and_without_torch(name: str) -> None:
    loaded = {module.split(".")[0] for module in _loaded_with(f"bertsmith.{name}")}
    assert loaded - {"bertsmith", "__future__"} - sys.stdlib_module_names <= LIGHT_PACKAGES


def test_there_are_no_import_cycles() -> None:
    """Nor among modules that import each other for types."""
    graph = {
        module: {other for other, _ in _imports(file) if other in MODULES and other != module}
        for module, file in MODULES.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError and names the cycle


def test_no_chain_of_imports_is_longer_than_a_reader_can_follow() -> None:
    """Counted in modules, over imports at the top level that run; a chain that gets longer is printed."""
    graph = {
        module: {other for other, at_top in _imports(file, for_types=False) if at_top and other in MODULES} - {module}
        for module, file in MODULES.items()
    }
    chains: dict[str, tuple[str, ...]] = {}
    for module in graphlib.TopologicalSorter(graph).static_order():
        below = max((chains[other] for other in graph[module]), key=len, default=())
        chains[module] = (module, *below)
    longest = max(chains.values(), key=len)
    assert len(longest) <= DEEPEST, " -> ".join(longest)


def test_the_server_knows_the_library_by_type_only_except_where_models_are_loaded() -> None:
    for file in sorted((SOURCE / "app" / "server").glob("*.py")):
        imported = [module for module, _ in _imports(file, for_types=False) if module.startswith("bertsmith.")]
        above = {_room(module) for module in imported if _district(module) != "base"} - {"app.server"}
        assert above <= ({"app.library"} if file.name == "process.py" else set()), f"{_name(file)}: {above}"


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_imports_are_at_the_top(file: Path) -> None:
    """Except optional and slow packages, and in cli/, where commands import packages when they run: --help is quick.

    A module that works without torch imports what needs it inside the functions that use it.
    """
    in_cli = file.relative_to(SOURCE).parts[:2] == ("app", "cli")
    name = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for module, at_top in _imports(file):
        lazy = module in OPTIONAL | SLOW or (in_cli and module.startswith("bertsmith."))
        lazy = lazy or (not at_top and _needs_torch(module) and not _needs_torch(name))
        assert at_top or lazy, f"{_name(file)} imports {module} inside a function"


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_files_are_neither_too_short_nor_too_long(file: Path) -> None:
    if file.name not in ("__init__.py", "__main__.py") and _name(file) not in TABLES:
        lines = len(file.read_text(encoding="utf-8").splitlines())
        assert SHORTEST <= lines <= LONGEST, f"{_name(file)} has {lines} lines"


def test_values_are_called_by_the_noun_of_what_they_are() -> None:
    """`found` is an argument of errors and what tests expect there; fields of classes are not looked at."""
    misnamed = []
    for file in itertools.chain.from_iterable((ROOT / folder).rglob("*.py") for folder in PYTHON_FOLDERS):
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
        fields = {id(part.target) for node in nodes if isinstance(node, ast.ClassDef) for part in node.body
                  if isinstance(part, ast.AnnAssign)}  # fmt: skip
        for node in nodes:
            if isinstance(node, ast.arg):
                name = "" if node.arg == "found" else node.arg
            else:
                name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""
            if name in STAND_INS and id(node) not in fields:
                misnamed.append(f"{file}:{node.lineno}: {name}")
    assert not misnamed


def test_commands_write_lines_with_the_functions_that_show_escapes() -> None:
    """`say`, `note` and `print_json`; only the help and the version are written in other ways."""
    for file in sorted((SOURCE / "app" / "cli").glob("*.py")):
        if file.name not in ("options.py", "app.py"):
            tree = ast.parse(file.read_bytes())
            names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}
            assert names.isdisjoint({"typer.echo", "typer.secho", "print"}), _name(file)


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    always = {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in project["dependencies"]}
    sometimes = {re.match(r"[\w-]+", line)[0] for name, lines in extras.items() if name != "dev" for line in lines}
    for file in FILES:
        for module, at_top in _imports(file):
            top = module.split(".")[0]
            if top in sys.stdlib_module_names or top in ("bertsmith", "__future__"):
                continue
            package = DISTRIBUTION_NAMES.get(top, top).replace("_", "-")
            # The server is only imported by the command that starts it, which first checks for the packages it needs.
            may = not at_top or file.relative_to(SOURCE).parts[:2] == ("app", "server")
            assert package in always or (may and package in sometimes), f"{_name(file)} imports {module}"


def test_the_source_distribution_holds_what_the_tests_need() -> None:
    """All that they read outside of `src/`; setuptools itself adds README.md, LICENSE and pyproject.toml."""
    lines = [line.split() for line in (ROOT / "MANIFEST.in").read_text(encoding="utf-8").splitlines()]
    listed = {name for words in lines if words and words[0] in ("graft", "include") for name in words[1:]}
    present = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    needed = {"CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "constraints.txt"}
    needed |= {"benchmarks", "docs", "examples", "requirements", "tests", "tools"}
    assert needed <= listed
    assert needed <= present


def test_importing_the_package_is_silent_and_loads_nothing_heavy() -> None:
    heavy = ["torch", "matplotlib", "pyarrow", "sklearn", "transformers", "rich", "typer", "huggingface_hub"]
    program = (
        f"import sys, bertsmith; loaded = set({heavy}) & set(sys.modules); sys.exit(' '.join(sorted(loaded)) or None)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_command_line_starts_without_torch_and_numpy() -> None:
    heavy = {"torch", "matplotlib", "numpy", "pyarrow"}
    program = f"import sys, bertsmith.app.cli.app; sys.exit(' '.join({heavy} & set(sys.modules)) or None)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("before", ["enable", "disable"])
def test_torch_is_imported_without_a_search_for_garbage(before: str) -> None:
    program = f"""
import gc
from bertsmith.base.machine.runtime import require_torch
gc.{before}()
searches = []
gc.callbacks.append(lambda phase, info: searches.append(phase))
require_torch("a model")
assert not searches
assert gc.isenabled() == ({before!r} == "enable")
assert gc.get_freeze_count() > 10 * len(gc.get_objects())
gc.unfreeze()
require_torch("a model")
assert not gc.get_freeze_count(), "what the caller has created since then is not touched"
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_first_answer_loads_no_slow_package_it_does_not_need(tmp_path: Path) -> None:
    """Besides torch itself: its compiler, plotting, statistics and the hub client."""
    write_base_model(tmp_path / "model")
    program = """
import sys, torch, numpy
before = set(sys.modules)
import bertsmith
bertsmith.load(sys.argv[1], device="cpu").embed(["the film"])
slow = {"torch._dynamo", "sympy", "matplotlib", "sklearn", "httpx", "scipy.optimize", "scipy.sparse", "scipy.stats"}
slow |= {"rich", "typer", "pydantic", "pyarrow", "transformers", "tokenizers", "torch.distributed.fsdp"}
sys.exit(" ".join(slow & set(sys.modules) - before) or None)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "model")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_words_are_counted_and_lines_tokenized_without_pandas() -> None:
    """Which `pyarrow.array` imports where it is installed, in half a second."""
    program = """
import sys
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.spelled import SpelledLines
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.report import vocabulary_report
from bertsmith.text.vocabularies.word_counts import count_words
lines = ["the film was good", "the caf\u00e9", "internationalization"] * 9
counts = count_words(lines, TextRules())
tokenizer = WordPieceTokenizer(learn_vocabulary(counts, 100))
vocabulary_report(tokenizer.vocabulary, {"lines": counts})
assert SpelledLines(tokenizer.vocabulary.pieces).of(tokenizer.encode_batch(lines))
sys.exit(" ".join({"pandas", "torch"} & set(sys.modules)) or None)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_the_help_of_every_command_loads_no_slow_package() -> None:
    """One process asks for the help of one command after the other; the first to load such a package is named."""
    program = """
import contextlib, io, sys
from bertsmith.app.cli.app import application
from bertsmith.app.cli.commands import COMMANDS
slow = {"torch", "scipy", "sklearn", "matplotlib", "transformers"}
for name in ("", *(command.name for command in COMMANDS)):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        application(name)([*name.split(), "--help"], prog_name="bertsmith")
    assert "Usage: bertsmith" in shown.getvalue(), name
    if loaded := slow & set(sys.modules):
        sys.exit(f"the help of '{name}' loads {' '.join(sorted(loaded))}")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


TUNE = "finetune --task spam --out {here}/run"
MISSING = {
    f"{TUNE} --model {{here}}/modle": "did you mean '{here}/model'?",
    f"{TUNE} --model starter --train {{here}}/mail.csv": "did you mean '{here}/mails.csv'?",
    f"{TUNE} --model starter --teacher {{here}}/modle": "did you mean '{here}/model'?",
    f"{TUNE.replace('spam', 'pairs')} --model starter --also a:cosent --teacher {{here}}/modle": "'{here}/model'?",
    "finetune --task spamm --out {here}/run --model starter": "did you mean 'spam'?",
    "predict --model {here}/modle": "did you mean '{here}/model'?",
    "evaluate --model {here}/model --data {here}/mail.csv": "did you mean '{here}/mails.csv'?",
    "embed {here}/mail.csv --model {here}/model --out {here}/x.npy": "did you mean '{here}/mails.csv'?",
    "embed {here}/mails.csv --model {here}/model --out {here}/x.npy --precision fp23": "found 'fp23'",
    "embed {here}/mails.csv --model {here}/model --out {here}/x.npy --device gpu": "found 'gpu'",
    "features {here}/mail.csv --model {here}/model --out {here}/x.npy": "did you mean '{here}/mails.csv'?",
    "serve --model mine={here}/modle --port 0": "did you mean '{here}/model'?",
    "adapt {here}/model {here}/mail.csv --steps 1 --out {here}/run": "did you mean '{here}/mails.csv'?",
    "pretrain {here}/modle --size tiny --steps 1 --out {here}/run": "did you mean '{here}/model'?",
    "distill --teacher {here}/modle --student 1 --out {here}/run": "did you mean '{here}/model'?",
    "compare --task {here}/mail.csv --systems tf-idf --out {here}/run": "did you mean '{here}/mails.csv'?",
    "translate --model {here}/modle": "did you mean '{here}/model'?",
    f"{TUNE} --model starter --keep bst": "did you mean 'best'?",
    "convert {here}/modle {here}/new --to onnx": "did you mean '{here}/model'?",
}


@pytest.mark.parametrize("words", MISSING)
def test_what_is_missing_is_refused_before_torch_is_imported(tmp_path: Path, words: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "mails.csv").write_text("text,label\n", encoding="utf-8")
    arguments = words.format(here=tmp_path).split()
    program = f"""
import sys
sys.argv = ["bertsmith", *{arguments!r}]
from bertsmith.app.cli.app import main
try:
    main()
except SystemExit as end:
    assert end.code == 1
assert "torch" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (0, "", 1), result.stderr
    assert MISSING[words].format(here=tmp_path) in result.stderr
