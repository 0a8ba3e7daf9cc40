"""The part `evaluation` of `sentence_encoders.py`: vectors scored here and, where `mteb` is installed, by its tasks.

Similarity: the dev set of the STS benchmark. Pair classification: the dev set of MRPC (paraphrases), and entailment
against contradiction in 1,000 pairs of SNLI. Clustering: the 6 kinds of TREC's test questions, the 150 intents of the
dev set of CLINC-150, the 8 topics of 300 texts of the test set of Reuters. Search: Cranfield.

Next to the vectors of models there are those of TF-IDF, fitted to the texts of each table.

Scores here are computed by the functions behind `bertsmith evaluate` and `bertsmith search --judgements`. MTEB gets the
same texts and vectors, for clustering normalized as here; each cell says by how much the scores differ at most.
"""

import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from labelled_rows import rows_of
from sklearn.feature_extraction.text import TfidfVectorizer

from bertsmith.base.core.randomness import generator
from bertsmith.inference.search.index import index_passages, query_vectors
from bertsmith.inference.search.passages import judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.rankings import Ranking
from bertsmith.inference.search.request import DEPTH
from bertsmith.inference.search.retrieval import score_search
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.heads.vector_forms import BY_COSINE
from bertsmith.recipes.sentence_encoders.evaluation import CLUSTERING, score_clusters, score_vectors
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.task_data.task_files import read_examples

Table = list[list[str]]
TFIDF = "TF-IDF"
MOST_TEXTS = 300  # of Reuters
# Which of our scores MTEB calls what.
IN_MTEB = {
    "cosine_spearman": "spearman",
    "cosine_pearson": "pearson",
    "cosine_ap": "average_precision",
    "cosine_accuracy": "accuracy",
    "v_measure": "v_measure",
}


def evaluation_cells(data: Path, models: Mapping[str, Callable[[], Any]], folder: Path) -> Iterator[tuple[str, Any]]:
    """The cells of all models.

    Args:
        models: makes each model, by name, or TFIDF.
        folder: for the tables.
    """
    for name, made in models.items():
        for task, (kind, rows) in tables(data).items():
            yield f"evaluation/{task}/{name}", lambda k=kind, r=rows, m=made: scored(k, r, m(), folder)
        if name != TFIDF:
            yield f"evaluation/Cranfield/{name}", lambda m=made: searched(data / "retrieval" / "cranfield", m())


def tables(data: Path) -> dict[str, tuple[str, Table]]:
    """The task and the rows of each table, with the names of the columns first."""
    sts = [line.split("\t") for line in lines_of(data / "glue/STS-B/dev.tsv")]
    mrpc = [line.split("\t") for line in lines_of(data / "glue/MRPC/dev.tsv")]
    snli = [line.split("\t") for line in lines_of(data / "nli/snli_val.tsv")]
    reuters = [line.split("\t", 1) for line in lines_of(data / "cls/reuters_r8/r8-test-all-terms.txt")]
    kept = sorted(generator(1, "texts to cluster").permutation(len(reuters))[:MOST_TEXTS].tolist())
    of_pairs, of_texts = ["sentence1", "sentence2", "label"], ["text", "label"]
    questions, intents = (rows_of(task, data)[1] for task in ("trec", "clinc-150"))
    return {
        "STS-B": ("similarity", [["sentence1", "sentence2", "score"], *([*row[7:9], row[9]] for row in sts)]),
        "MRPC": ("pairs", [of_pairs, *([*row[3:5], row[0]] for row in mrpc)]),
        "SNLI": ("pairs", [of_pairs, *(row for row in snli if row[2] in ("entailment", "contradiction"))]),
        "TREC": (CLUSTERING, [of_texts, *(list(row) for row in questions)]),
        "CLINC-150": (CLUSTERING, [of_texts, *(list(row) for row in intents)]),
        "Reuters-8": (CLUSTERING, [of_texts, *([reuters[row][1], reuters[row][0]] for row in kept)]),
    }


def lines_of(path: Path) -> list[str]:
    """The lines of a table without its first."""
    return path.read_text(encoding="utf-8-sig").splitlines()[1:]


def scored(task: str, rows: Table, model: Any, folder: Path) -> dict[str, Any]:
    """The scores of a model on a table, here and by MTEB."""
    path = folder / "table.jsonl"
    lines = (json.dumps(dict(zip(rows[0], row, strict=True))) for row in rows[1:])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    start = time.process_time()
    texts = [text for row in rows[1:] for text in row[:-1]]
    embedder = Remembered(WeighedWords(texts) if model == TFIDF else load_embedder(model, device="cpu"), texts)
    seconds = round(time.process_time() - start, 2)
    examples = read_examples("classification" if task == CLUSTERING else task, path).examples
    score = score_clusters if task == CLUSTERING else score_vectors
    scores = score(embedder, examples)[0]  # type: ignore[operator]
    theirs = by_mteb(task, rows[1:], embedder) if has_mteb() else {}
    return {"examples": len(examples), "seconds": seconds, **side_by_side(scores, theirs)}


def searched(folder: Path, model: Any) -> dict[str, Any]:
    """The scores of a search in Cranfield by vectors, here and by MTEB."""
    passages = read_text_set(folder / "cran.all.1400.xml")
    queries = read_text_set(folder / "cran.qry.xml", kind="queries")
    judgements = judgements_for(read_judgements(folder / "cranqrel.trec.txt"), queries, "places")
    embedder = load_embedder(model, device="cpu")
    ranking = index_passages(passages.texts, embedder).search(query_vectors(queries.texts, embedder), DEPTH)
    scores = score_search(ranking, queries, passages, judgements)
    theirs = ranked_by_mteb(ranking, queries.ids, passages.ids, judgements) if has_mteb() else {}
    return {"examples": scores.num_queries, **side_by_side(scores.scores, theirs)}


def has_mteb() -> bool:
    """Whether the package of the peer is installed."""
    return importlib.util.find_spec("mteb") is not None


def side_by_side(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, Any]:
    """The scores of both, and the largest difference of those that both have."""
    shared = ours.keys() & theirs.keys()
    return {
        "scores": {name: round(score, 4) for name, score in ours.items()},
        "mteb": {name: round(float(score), 4) for name, score in theirs.items()},
        "largest_difference": max(abs(ours[name] - float(theirs[name])) for name in shared) if shared else None,
    }


class WeighedWords:
    """TF-IDF vectors, of the words of some texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.vectorizer = TfidfVectorizer().fit(texts)
        self.width = len(self.vectorizer.vocabulary_)

    def embed_counting(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """The vectors [texts, D], and no tokens that are cut from any text."""
        return self.vectorizer.transform(texts).toarray().astype(np.float32), np.zeros(len(texts), dtype=np.int64)


class Remembered:
    """An embedder that has read all texts already, each once."""

    similarity = BY_COSINE

    def __init__(self, embedder: Embedder | WeighedWords, texts: Sequence[str]) -> None:
        known = sorted(set(texts))
        vectors, cut = embedder.embed_counting(known)
        self.width = embedder.width
        self._of_text = {text: (vector, lost) for text, vector, lost in zip(known, vectors, cut, strict=True)}

    def for_queries(self) -> "Remembered":
        """Itself: the models here have no prompts."""
        return self

    for_passages = for_queries

    def embed_counting(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """The vectors [texts, D], and the tokens cut from each text."""
        vectors, cut = zip(*(self._of_text[text] for text in texts), strict=True)
        return np.stack(vectors), np.array(cut)


class GivenVectors:
    """What MTEB takes for a model: the vectors of our embedder for its texts."""

    mteb_model_meta = None

    def __init__(self, embedder: Remembered, *, normalized: bool) -> None:
        self.embedder, self.normalized = embedder, normalized

    def encode(self, inputs: Any, **_: Any) -> Any:
        """The vectors of the texts of a data loader, [texts, D]."""
        vectors, _ = self.embedder.embed_counting([text for batch in inputs for text in batch["text"]])
        return unit(vectors) if self.normalized else vectors

    def similarity(self, first: Any, second: Any) -> Any:
        """Cosines of all vectors of both, [first, second]."""
        return unit(np.asarray(first)) @ unit(np.asarray(second)).T

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        """Cosines of the vectors of each pair, [pairs]."""
        return (unit(np.asarray(first)) * unit(np.asarray(second))).sum(axis=1)


def by_mteb(task: str, rows: Sequence[Sequence[str]], embedder: Remembered) -> dict[str, float]:
    """The scores of a task of MTEB of that kind on these rows."""
    import mteb
    from mteb.timing import TimingStack

    from datasets import Dataset

    columns = list(zip(*rows, strict=True))
    if task == CLUSTERING:
        numbers = {label: number for number, label in enumerate(sorted(set(columns[1])))}
        labels = [numbers[label] for label in columns[1]]
        name, table = "TwentyNewsgroupsClustering", {"sentences": [list(columns[0])], "labels": [labels]}
    else:
        name = "STSBenchmark" if task == "similarity" else "TwitterSemEval2015"
        values = [float(label) if task == "similarity" else int(label in ("1", "entailment")) for label in columns[2]]
        wanted = "score" if task == "similarity" else "labels"
        table = {"sentence1": list(columns[0]), "sentence2": list(columns[1]), wanted: values}
    scores = mteb.get_task(name)._evaluate_subset(
        GivenVectors(embedder, normalized=task == CLUSTERING), Dataset.from_dict(table), hf_split="test",
        hf_subset="default", encode_kwargs={"batch_size": 32}, timer=TimingStack(),
    )  # fmt: skip
    return {ours: float(scores[theirs]) for theirs, ours in IN_MTEB.items() if theirs in scores}


def ranked_by_mteb(
    ranking: Ranking, queries: Sequence[str], passages: Sequence[str], judgements: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The scores that MTEB gives a ranking."""
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores

    judged = {
        query: {passage: int(gain) for passage, gain in judgements[query].items()}
        for query in queries
        if any(judgements.get(query, {}).values())
    }
    results = {
        query: {passages[passage]: score for passage, score in ranking.row(number)}
        for number, query in enumerate(queries)
        if query in judged
    }
    scores = calculate_retrieval_scores(results, judged, [10, 100])
    return {
        "ndcg@10": scores.ndcg["NDCG@10"],
        "recall@10": scores.recall["Recall@10"],
        "recall@100": scores.recall["Recall@100"],
        "map@100": scores.map["MAP@100"],
        "mrr@10": scores.mrr["MRR@10"],
    }
