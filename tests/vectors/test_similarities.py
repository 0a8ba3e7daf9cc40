"""The similarity that a sentence-transformers folder names is the one of its model, or it is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import build_index, evaluate, load, search_passages
from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.heads.vector_forms import OF_DENSE_VECTORS
from bertsmith.tasks.metrics.vectors import all_similarities, similarities
from vectors.test_vector_layers import base, write_modules

__all__ = ["base"]  # the fixture
TEXTS = ["anna was in rome", "a great film", "the plot was awful and good", "bert and carl", "a good film in rome"]


def model_folder(base: Path, folder: Path, similarity: object, *, normalize: bool = False) -> Path:
    write_modules(base, folder, activation="torch.nn.modules.linear.Identity")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": similarity}))
    modules = json.loads((folder / "modules.json").read_text())
    if normalize:
        modules.append({"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"})
    named = [{"idx": number, "name": str(number), **module} for number, module in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(named))
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "normalize"), [*((name, False) for name in OF_DENSE_VECTORS), ("dot", True)])
def test_scores_are_the_similarities_of_that_library(base: Path, tmp_path: Path, name: str, normalize: bool) -> None:
    library = pytest.importorskip("sentence_transformers", reason="needs the extra dev: sentence-transformers")
    folder = model_folder(base, tmp_path / "model", name, normalize=normalize)
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    vectors = theirs.encode(TEXTS)
    expected = theirs.similarity(vectors[:1], vectors).numpy()[0]
    np.testing.assert_allclose(all_similarities(vectors[:1], vectors, name)[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        similarities(vectors[:-1], vectors[1:], name),
        theirs.similarity_pairwise(vectors[:-1], vectors[1:]).numpy(),
        rtol=1e-4,
        atol=1e-5,
    )
    reranked = load(folder, device="cpu").rerank(TEXTS[0], TEXTS)
    np.testing.assert_allclose(reranked, expected, rtol=1e-4, atol=1e-4)
    gold = np.linspace(0, 5, len(TEXTS))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "sentence1\tsentence2\tscore\n"
        + "".join(f"{TEXTS[0]}\t{text}\t{value}\n" for text, value in zip(TEXTS, gold, strict=True))
    )
    scores = evaluate(folder, pairs, task="similarity", device="cpu").scores
    assert scores["pearson"] == pytest.approx(float(np.corrcoef(gold, expected)[0, 1]), abs=1e-5)
    passages = tmp_path / "passages.txt"
    passages.write_text("\n".join(TEXTS) + "\n")
    if name in ("euclidean", "manhattan"):
        with pytest.raises(BertsmithError, match=f"compared by the cosine, for a search; found .* {name}"):
            search_passages(passages, TEXTS[:1], model=folder, device="cpu")
    else:
        (result,) = search_passages(passages, TEXTS[:1], model=folder, device="cpu", top=len(TEXTS))
        np.testing.assert_allclose([hit.score for hit in result.passages], -np.sort(-expected), rtol=1e-4, atol=1e-4)
    if name == "cosine" or (name == "dot" and normalize):
        build_index(passages, model=folder, out=tmp_path / "index", device="cpu")
    else:
        with pytest.raises(BertsmithError, match=f"for an index on disk; found similarity_fn_name {name}"):
            build_index(passages, model=folder, out=tmp_path / "index", device="cpu")


@pytest.mark.parametrize("name", [None, "", "maxsim", ["dot"], 3])
def test_another_similarity_is_the_cosine_as_there(base: Path, tmp_path: Path, name: object) -> None:
    recipe = read_recipe(model_folder(base, tmp_path / "model", name), layers=True)
    assert recipe is not None
    assert recipe.similarity == "cosine"
