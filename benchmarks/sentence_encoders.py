"""Encoders of sentences: training against sentence-transformers, the starter against TF-IDF, static vectors.

    python benchmarks/sentence_encoders.py --data DIR --model MODEL [--part peer|starter|static|evaluation] [--seeds 3]
    python benchmarks/sentence_encoders.py --data DIR --model MODEL --part peer --lowest 3 --examples 2400 --rate 1e-4

peer: MODEL is trained on scored pairs of the STS benchmark with the squared difference of cosine and score, by
`bertsmith finetune` and by sentence-transformers: its model, tokenization and `CosineSimilarityLoss`, in a plain loop
with what its trainer does (AdamW, linear warm-up and decay, clipping at norm 1). Same start, same examples, number of
steps, batch and rate, fp32; each system draws its own order and dropout. Seconds are processor seconds from the loaded
model to the trained one, here with writing the run folder, without evaluation. Spearman of cosines on the dev set.
With `--lowest N`, both start from the N lowest layers of MODEL, whose vectors have much to learn.

starter: the starter model becomes static vectors of its word table, which are trained on labelled pairs (MNLI, SNLI,
SICK: entailment belongs together) and then on the scored pairs of the STS benchmark; next to TF-IDF.

static: vectors of MODEL and static vectors made from it: Spearman on the STS benchmark, nDCG@10 on Cranfield next to
BM25, processor seconds to embed the STS sentences.

evaluation: similarity, pair classification, clustering and search with the vectors of the starter and MODEL, with
static vectors of both and with TF-IDF, scored here and by MTEB; see `sentence_scores.py`.

Each cell is one line of the result file; cells that are there are not computed again.
"""

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from harness import RESULTS, machine, machine_label
from sentence_scores import TFIDF, evaluation_cells
from sklearn.feature_extraction.text import TfidfVectorizer

import bertsmith
from bertsmith.app.library.retrieval import score_searches
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import SIMILARITY, TextExample
from bertsmith.tasks.datasets.glue import GLUE, read_glue
from bertsmith.tasks.metrics.numbers import spearman
from bertsmith.tasks.metrics.vectors import cosines
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.split import TaskData

BATCH, MAX_LENGTH = 16, 128
ROUNDS = 5  # of timing


def pairs_of(data: Path, split: str) -> list[TextExample]:
    """The scored pairs of the STS benchmark."""
    return list(read_glue(GLUE["sts-b"], data / "glue" / "STS-B" / f"{split}.tsv", labelled=True).examples)


def dev_spearman(embed: Any, pairs: list[TextExample]) -> float:
    """The Spearman correlation of the cosines of the vectors that `embed` computes."""
    first, second = embed([pair.first for pair in pairs]), embed([pair.second for pair in pairs])
    return float(spearman([float(pair.label) for pair in pairs], cosines(first, second)))


def ours(
    model: str, train: list[TextExample], dev: list[TextExample], seed: int, rate: float, folder: Path
) -> dict[str, Any]:
    """One training here."""
    spec = vector_spec(SIMILARITY, train, TaskSettings(max_length=MAX_LENGTH))
    settings = FinetuningSettings(batch_size=BATCH, epochs=1, vector_loss="cosine", precision="fp32", device="cpu")
    recipe = RecipeSettings(learning_rate=rate, schedule="hf_linear", bias_correction=True, keep="last", seed=seed)
    job = FinetuningJob.prepare(model, spec, TaskData(train=train, dev=()), settings, recipe)
    start = time.process_time()
    result = job.train_once(folder / f"ours-{seed}", seed)
    seconds = time.process_time() - start
    embedder = load_embedder(folder / f"ours-{seed}" / "model", device="cpu")
    return {"steps": result.steps, "seconds": round(seconds, 1), "spearman": dev_spearman(embedder.embed, dev)}


def peer(model: str, train: list[TextExample], dev: list[TextExample], seed: int, rate: float) -> dict[str, Any]:
    """One training of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import CosineSimilarityLoss
    from transformers import get_linear_schedule_with_warmup

    torch.manual_seed(seed)
    encoder = SentenceTransformer(model, device="cpu")
    encoder.max_seq_length = MAX_LENGTH
    criterion = CosineSimilarityLoss(encoder)
    most = max(float(pair.label) for pair in train)
    steps = len(train) // BATCH
    start = time.process_time()
    no_decay = ("bias", "LayerNorm.weight")
    named = list(encoder.named_parameters())
    groups = [
        {"params": [parameter for name, parameter in named if not name.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [parameter for name, parameter in named if name.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=rate, eps=1e-6)
    schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
    encoder.train()
    order = torch.randperm(len(train)).tolist()
    for step in range(steps):
        batch = [train[index] for index in order[step * BATCH : (step + 1) * BATCH]]
        sides = [encoder.tokenize([getattr(pair, side) for pair in batch]) for side in ("first", "second")]
        loss = criterion(sides, torch.tensor([float(pair.label) / most for pair in batch]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    seconds = time.process_time() - start
    encoder.eval()
    score = dev_spearman(lambda texts: encoder.encode(texts, show_progress_bar=False), dev)
    return {"steps": steps, "seconds": round(seconds, 1), "spearman": score}


def lowest_layers(model: Path, count: int, folder: Path) -> Path:
    """A copy of a folder of sentence-transformers with the lowest layers of its BERT."""
    shutil.copytree(model, folder)
    tensors = safetensors.torch.load_file(model / "model.safetensors")
    layer = re.compile(r"encoder\.layer\.([0-9]+)\.")
    kept = {
        name: tensor for name, tensor in tensors.items() if not (match := layer.search(name)) or int(match[1]) < count
    }
    safetensors.torch.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": count}), encoding="utf-8")
    return folder


def peer_cells(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    """Both systems for every seed, taking turns."""
    train, dev = pairs_of(options.data, "train")[: options.examples], pairs_of(options.data, "dev")
    model, name, rate = options.model, "peer", options.rate
    if options.lowest:
        model = str(lowest_layers(Path(model), options.lowest, folder / "lowest"))
        name = f"peer, {options.lowest} lowest layers, {len(train)} pairs, rate {rate:g}"
    yield f"{name}/start", lambda: {"spearman": dev_spearman(load_embedder(model, device="cpu").embed, dev)}
    for seed in range(1, options.seeds + 1):
        yield f"{name}/bertsmith/{seed}", lambda seed=seed: ours(model, train, dev, seed, rate, folder)
        yield f"{name}/sentence-transformers/{seed}", lambda seed=seed: peer(model, train, dev, seed, rate)


def starter_cells(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    """The starter's vectors, before and after each stage, next to TF-IDF."""
    dev_file, train_file = (options.data / "glue" / "STS-B" / f"{split}.tsv" for split in ("dev", "train"))
    dev = pairs_of(options.data, "dev")
    texts = [pair.first for pair in dev] + [pair.second for pair in dev]

    def of_words() -> dict[str, Any]:
        vectors = TfidfVectorizer().fit_transform(texts).toarray()
        half = len(dev)
        return {"spearman": float(spearman([pair.label for pair in dev], cosines(vectors[:half], vectors[half:])))}

    yield "starter/TF-IDF", of_words
    yield "starter/mean of the last layer", lambda: {"spearman": dev_spearman(load_embedder("starter").embed, dev)}
    pairs, text, static = folder / "pairs.tsv", folder / "texts.txt", folder / "static"
    write_pairs(options.data, pairs, text)

    def made() -> Path:
        if not static.exists():
            bertsmith.make_static_vectors("starter", static, layers="embeddings", text=str(text))
        return static

    yield "starter/static", lambda: {"spearman": dev_spearman(load_embedder(made()).embed, dev)}

    def trained(seed: int, *, scored: bool) -> dict[str, Any]:
        run, then = folder / f"pairs-{seed}", folder / f"scored-{seed}"
        start = time.process_time()
        common = {"seeds": 1, "seed": seed, "precision": "fp32", "keep": "last", "baselines": False}
        if not run.exists():
            bertsmith.finetune(
                made(), "pairs", run, train=pairs, dev=dev_file, learning_rate=1e-3, epochs=5, batch_size=256, **common
            )
        if scored:
            bertsmith.finetune(
                run, "similarity", then, train=train_file, dev=dev_file, vector_loss="cosine", learning_rate=1e-3,
                epochs=6, batch_size=64, dropout=0.3, **common,
            )  # fmt: skip
        seconds = round(time.process_time() - start, 1)
        return {"seconds": seconds, "spearman": dev_spearman(load_embedder(then if scored else run).embed, dev)}

    for seed in range(1, options.seeds + 1):
        yield f"starter/static, pairs/{seed}", lambda seed=seed: trained(seed, scored=False)
        yield f"starter/static, pairs, scored pairs/{seed}", lambda seed=seed: trained(seed, scored=True)


def write_pairs(data: Path, pairs: Path, text: Path) -> None:
    """Writes the labelled pairs of MNLI, SNLI and SICK, and their texts with those of the STS training set."""
    rows = []
    for name in ("mnli_train.tsv", "snli_val.tsv"):
        lines = (data / "nli" / name).read_text(encoding="utf-8").split("\n")[1:]
        rows += [line.split("\t")[:3] for line in lines if line.count("\t") >= 2]
    for line in (data / "nli" / "SICK_train.txt").read_text(encoding="utf-8").split("\n")[1:]:
        cells = line.split("\t")
        rows += [[cells[1], cells[2], cells[4].strip().lower()]] if len(cells) == 5 else []
    table = "".join("\t".join(row) + "\n" for row in rows)
    pairs.write_text(f"sentence1\tsentence2\tlabel\n{table}", encoding="utf-8")
    scored = [side for pair in pairs_of(data, "train") for side in (pair.first, pair.second or "")]
    text.write_text("\n".join([*(cell for row in rows for cell in row[:2]), *scored]) + "\n", encoding="utf-8")


def static_cells(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    """The model and its static vectors: similarity, search and time."""
    dev, cranfield = pairs_of(options.data, "dev"), options.data / "retrieval" / "cranfield"
    texts = [pair.first for pair in dev] + [pair.second or "" for pair in dev]
    text, static = folder / "scored.txt", folder / "static-of-model"
    text.write_text(
        "".join(f"{pair.first}\n{pair.second}\n" for pair in pairs_of(options.data, "train")), encoding="utf-8"
    )

    def made(weights: str | None = None) -> Path:
        out = static if weights is None else folder / "static-with-text"
        if not out.exists():
            bertsmith.make_static_vectors(options.model, out, text=weights)
        return out

    def similar(source: Any) -> dict[str, Any]:
        embedder = load_embedder(source, device="cpu")
        embedder.embed(texts[:100])
        times = []
        for _ in range(ROUNDS if source != options.model else 1):
            start = time.process_time()
            embedder.embed(texts)
            times.append(time.process_time() - start)
        return {"spearman": dev_spearman(embedder.embed, dev), "seconds": round(float(np.median(times)), 4)}

    def searched(source: Any) -> dict[str, Any]:
        searches = score_searches(
            cranfield / "cran.all.1400.xml", cranfield / "cran.qry.xml", cranfield / "cranqrel.trec.txt",
            judged_by="places", model=source,
        )  # fmt: skip
        return {name: round(scores.scores["ndcg@10"], 4) for name, scores in searches.items()}

    yield "static/STS-B/the model", lambda: similar(options.model)
    yield "static/STS-B/static", lambda: similar(made())
    yield "static/STS-B/static, weights of text", lambda: similar(made(str(text)))
    yield "static/Cranfield/static", lambda: searched(made())


def scored_cells(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    """The scores of models and their static vectors, next to those that MTEB computes."""

    def static(model: str, **settings: Any) -> Path:
        out = folder / f"static of {Path(model).name}"
        if not out.exists():
            bertsmith.make_static_vectors(model, out, **settings)
        return out

    models = {
        TFIDF: lambda: TFIDF,
        "starter, static": lambda: static("starter", layers="embeddings"),
        "starter": lambda: "starter",
        "the model": lambda: options.model,
        "the model, static": lambda: static(options.model),
    }
    wanted = {name: made for name, made in models.items() if name in (options.vectors or models)}
    yield from evaluation_cells(options.data, wanted, folder)


def main() -> None:
    """Computes the missing cells of the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--model", required=True, help="a folder that sentence-transformers loads")
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="[all]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=1440, help="peer: scored pairs that both train on [1440]")
    parser.add_argument("--rate", type=float, default=2e-5, help="peer: the learning rate [2e-5]")
    parser.add_argument("--lowest", type=int, help="peer: start from that many of the lowest layers of MODEL [all]")
    parser.add_argument("--vectors", nargs="+", help="evaluation: of these alone, such as 'starter, static' [all]")
    options = parser.parse_args()
    described = machine()
    label = f"{machine_label(described)}_torch-{described['packages']['torch']}"
    path = RESULTS / f"sentence_encoders_{label}.jsonl"
    done = {json.loads(line)["cell"] for line in path.read_text().splitlines()} if path.exists() else set()
    with tempfile.TemporaryDirectory() as folder:
        for part in options.part or PARTS:
            for cell, compute in PARTS[part](options, Path(folder)):
                if cell in done:
                    continue
                result = {"cell": cell, **compute(), "threads": torch.get_num_threads(), "machine": described}
                print(json.dumps({name: value for name, value in result.items() if name != "machine"}), flush=True)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")


PARTS = {"peer": peer_cells, "starter": starter_cells, "static": static_cells, "evaluation": scored_cells}


if __name__ == "__main__":
    main()
