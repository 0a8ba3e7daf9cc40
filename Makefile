# make demo and make test work on a fresh machine with git, make and Python; every target sets itself up. `make help`
# prints what follows `##`.

PYTHON ?= python3
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 1) + 1)

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
LIGHT := .venv-light
SITE := .venv-site

.PHONY: help install release bounds demo test test-times test-avx2 test-default test-slow test-light check docs notebooks site bench gpu format clean

help: ## this list
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / { printf "make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## sets up .venv and nothing else: about five minutes, 2.9 GB with the CPU build of torch
	@echo "the commands are in $(BIN)/; for this shell: . $(BIN)/activate"

# The whole chain on the documentation that is on this machine; ends with demo/report.html, which is replaced each time.
demo: $(INSTALLED) ## the whole chain on text of this machine, in about five minutes; replaces demo/
	rm -rf demo
	$(BIN)/bertsmith demo --out demo $(DEMO)

# Each worker, and each process that a test starts, would otherwise compile the package and the tests again.
export PYTHONDONTWRITEBYTECODE =

# A worker takes the tests of a file in order, so that what they share is made once.
SUITE := -q -n $(JOBS) --maxprocesses 5 --dist worksteal -m "not slow"

# The suite: doctests in src/, tests/. No network, no GPU.
test: $(INSTALLED) ## the suite, about fourteen minutes on two cores; TEST=tests/text runs part of it
	$(BIN)/pytest $(SUITE) $(TEST)

test-times: $(INSTALLED) ## the suite, and its fifty slowest tests with their seconds
	$(BIN)/pytest $(SUITE) --durations 50 --durations-min 0.1 $(TEST)

# The tests that multiply numbers, as if the processor had AVX2 alone, and the core of them without vector kernels in
# torch. oneDNN, torch, MKL, OpenBLAS, NumPy and Numba are limited; ONNX Runtime cannot be. Left out are parsers,
# settings, messages, files, and processes that are killed or train together, which are the same everywhere. A processor
# that has AVX2 alone runs `make test` that way anyway.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell \
	NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" NUMBA_CPU_NAME=haswell
NUMERIC := $(addprefix tests/,test_processor.py model products encoders \
	$(addprefix inference/test_,completion.py mixes.py perplexity.py predictor.py pretraining_heads.py quantization.py streaming.py) \
	$(addprefix vectors/test_,embedder.py frozen_encoder.py similarities.py token_features.py vector_layers.py) \
	$(addprefix checkpoints/test_,gliner.py late_interaction.py sparse_encoders.py static_folders.py) \
	$(addprefix export/test_,check.py onnx_files.py) indexes/test_token_cells.py $(addprefix server/test_,adapters.py low_precision.py same_answers.py) \
	$(addprefix training/test_,averaging.py lanes.py loop.py optimizer.py) \
	$(addprefix pretraining/test_,architectures.py autoencoder.py held_out_scores.py initialization.py language_model.py \
		language_models.py run.py two_directions.py two_directions_in_tracks.py workload.py) \
	$(addprefix finetuning/test_,finetuning.py kept_head.py language_model_loss.py merging.py own_head.py reranking.py \
		same_training.py sources.py sparse_vectors.py token_vectors.py ulmfit.py vector_training.py) translation/test_run.py memory codes video \
	$(addprefix tasks/test_,copying.py coreference.py extraction.py generation.py response_selection.py) \
	sentence_encoders word_vectors \
	$(addprefix distillation/test_,corpus_distillation.py losses.py pruning.py students.py task_distillation.py \
		vector_teaching.py))

test-avx2: $(INSTALLED) ## the numeric tests as on a processor with AVX2 alone
	@if grep -qw avx512f /proc/cpuinfo; then \
		$(AVX2) $(BIN)/pytest $(SUITE) $(or $(TEST),$(NUMERIC)); \
	else echo "this processor has no AVX-512, so that make test is this leg"; fi

CORE := $(addprefix tests/,test_processor.py model products encoders inference)
test-default: $(INSTALLED) ## the core of the numeric tests without vector kernels in torch
	ATEN_CPU_CAPABILITY=default $(BIN)/pytest $(SUITE) $(or $(TEST),$(CORE))

# The tests that take minutes.
test-slow: $(INSTALLED) ## the tests that take minutes
	$(BIN)/pytest -q -m slow --timeout 1800 $(TEST)

# The tests of ONNX folders, with processes of an environment that is installed without torch, as docs/export.md shows.
test-light: $(INSTALLED) ## the tests of ONNX folders, in an environment without torch (needs a network)
	rm -rf $(LIGHT) build
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt \
		--requirement requirements/light.txt fastapi prometheus-client pydantic uvicorn
	$(LIGHT)/bin/python -m pip install --disable-pip-version-check --quiet --no-deps .
	BERTSMITH_LIGHT_PYTHON=$(abspath $(LIGHT)/bin/python) $(BIN)/pytest -q tests/test_light.py

# Formatting, lint, types, and the rules of the house.
check: $(INSTALLED) ## formatting, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py tests/test_public_names.py
	$(BIN)/python tools/command_reference.py --check
	$(BIN)/python tools/speed_table.py --check
	PYTHONPATH=src $(BIN)/python tools/build_site.py --check

# Runs every command line that README.md and docs/ show.
docs: $(INSTALLED) ## runs every command line of README.md and docs/
	$(BIN)/python tools/check_docs.py

# Runs the tutorials and stores their outputs; NOTEBOOKS="--check docs/tutorials/04-search.ipynb" compares those of one.
notebooks: $(INSTALLED) ## runs the notebooks of docs/tutorials and stores their outputs
	$(BIN)/python tools/notebooks.py $(NOTEBOOKS)

# The pages of docs/ as a site that can be read without a network. It has an environment of its own, which needs neither
# torch nor the package.
site: $(SITE)/installed ## builds the site of docs/ in site/, in about a minute
	PYTHONPATH=src $(SITE)/bin/python tools/build_site.py site

$(SITE)/installed: requirements/site.txt constraints.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt \
		--requirement requirements/site.txt
	@touch $@

# The benchmark lines that need no data of yours; BENCH="finetuning --data DIR" runs one that needs a folder of yours.
BENCHES := tokenizer_speed vocabulary_learning pretraining_step
bench: $(INSTALLED) ## the benchmarks that need no data of yours; BENCH="NAME OPTIONS" runs another one
ifdef BENCH
	$(BIN)/python benchmarks/$(firstword $(BENCH)).py $(wordlist 2,99,$(BENCH))
else
	@for name in $(BENCHES); do echo "$$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done
endif

# On a machine with a GPU: the tests on it, then the benchmark lines that need one, from src/ and with the packages of
# GPU_PYTHON, whose torch has to support the GPU; nothing is installed. GPU_BENCH="--line base --rounds 3" runs less.
GPU_PYTHON ?= $(PYTHON)
gpu: ## tests and benchmarks on a GPU; GPU_PYTHON names the Python with its torch
	@PYTHONPATH=src $(GPU_PYTHON) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "make gpu: expected a CUDA device; found none; run it on a machine with one, or name its Python: make gpu GPU_PYTHON=python3")'
	PYTHONPATH=src $(GPU_PYTHON) -m pytest -q -m gpu -o addopts= -o filterwarnings=default --import-mode=importlib tests/gpu
	PYTHONPATH=src $(GPU_PYTHON) benchmarks/gpu_speed.py $(GPU_BENCH)

# Rewrites what `make check` would refuse and a program can fix.
format: $(INSTALLED) ## fixes what a program can fix, rewrites docs/commands.md, docs/names.md and the man page
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/command_reference.py
	$(BIN)/python tools/speed_table.py

# The archives of the last commit, in dist/; RELEASE="--python python3.13" also installs the wheel there by pip, uv and
# pipx, and tries it.
release: $(INSTALLED) ## wheel and source distribution in dist/, built twice, the same bytes (needs a network)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt 'pipx>=1.7' 'twine>=6' 'uv>=0.8'
	$(BIN)/python tools/release.py $(RELEASE)

# BOUNDS="lowest --keep torch==2.13.0" tries less; UV_TORCH_BACKEND=cpu selects builds of torch without CUDA.
bounds: $(INSTALLED) ## tries the lowest and the newest versions of all dependencies (needs a network)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt uv
	$(BIN)/python tools/bounds.py $(BOUNDS)

clean: ## removes .venv and what the tools leave
	rm -rf $(VENV) $(LIGHT) $(SITE) site .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info build dist

# pip takes the torch build that its configured index offers; see CONTRIBUTING.md for another one.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "make: expected Python 3.11 or newer; found " + sys.version.split()[0] + "; name another one: make PYTHON=/path/to/python3")'
	@echo "setting up $(VENV): about five minutes, without further messages"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
