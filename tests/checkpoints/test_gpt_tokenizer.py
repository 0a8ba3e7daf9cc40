"""The published vocabulary of GPT: the ids of transformers, rows of bare text, special pieces for fine-tuning."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from bertsmith import load
from bertsmith.base.core.errors import InputError
from bertsmith.inference.vectors.loading import load_token_features
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.special_pieces import with_special_pieces
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.tokenizer_files import read_gpt_tokenizer, read_tokenizer, read_tokenizer_file
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.text.tokenizers.pack import pack_rows
from tasks.task_samples import SPECS, WORDS, examples_of

TEXTS = st.text(st.sampled_from("the film wás né中😀 \t.#'</w>") | st.characters(codec="utf-8"), max_size=40)


def write_files(folder: Path) -> int:
    """`vocab.json` and `merges.txt` of a small BPE as GPT's, with `<unk>` first; the number of its pieces."""
    learner = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    learner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    learner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    learner.train_from_iterator([f"the {word} {other}" for word in WORDS for other in ("film", ".")], trainer)
    learner.model.save(str(folder))
    merges = folder / "merges.txt"
    merges.write_text("#version: 0.2\n" + merges.read_text().removeprefix("#version: 0.2\n"), encoding="utf-8")
    return learner.get_vocab_size()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny folder with the files of the published one: bare weights, vocab.json, merges.txt."""
    folder = tmp_path_factory.mktemp("published")
    pieces = write_files(folder)
    torch.manual_seed(0)
    config = transformers.OpenAIGPTConfig(vocab_size=pieces, n_embd=32, n_layer=2, n_head=4, n_positions=40)
    transformers.OpenAIGPTModel(config).save_pretrained(folder)
    return folder


@given(TEXTS)
def test_ids_are_those_of_transformers(published: Path, text: str) -> None:
    ours, _ = read_gpt_tokenizer(published, ModelMetadata())
    assert ours.encode(text.replace("<unk>", "")).tolist() == peer(published)(text.replace("<unk>", ""))["input_ids"]


def peer(folder: Path) -> transformers.PreTrainedTokenizerBase:
    values = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    return transformers.OpenAIGPTTokenizer(vocab=values, merges=[tuple(line.split(" ")) for line in lines])


def test_a_folder_whose_architecture_is_not_known_is_read_by_its_pieces(published: Path) -> None:
    ours, _ = read_tokenizer(published, ModelMetadata())
    assert ours.encode("The unfilmed film.").tolist() == peer(published)("The unfilmed film.")["input_ids"]
    assert read_tokenizer_file(published).settings == ours.settings


def test_it_is_read_from_a_tokenizer_json_too_and_words_are_counted_by_their_ends(
    published: Path, tmp_path: Path
) -> None:
    peer(published).save_pretrained(tmp_path)
    tokenizer, other = (read_gpt_tokenizer(folder, ModelMetadata())[0] for folder in (published, tmp_path))
    text = "The unfilmed film."
    assert tokenizer.encode(text).tolist() == other.encode(text).tolist()
    assert tokenizer.decode(tokenizer.encode(text)) == "the unfilmed film ."
    pieces = tokenizer.tokenize(text)
    starts = [number == 0 or pieces[number - 1].endswith("</w>") for number in range(len(pieces))]
    assert tokenizer.starts_of_words(tokenizer.encode(text)).tolist() == starts
    assert sum(starts) == 4
    assert len(pieces) > 4
    rows = pack_rows([[7, 8]], [[9]], template=tokenizer.template, max_length=16)
    assert rows.token_ids.tolist() == [7, 8, 9]
    (published / "merges.txt").rename(published / "elsewhere")
    try:
        with pytest.raises(InputError, match=r"merges\.txt"):
            read_gpt_tokenizer(published, ModelMetadata())
    finally:
        (published / "elsewhere").rename(published / "merges.txt")


def test_the_published_model_completes_texts_and_gives_vectors_of_words(published: Path) -> None:
    model = load(published, device="cpu")
    assert model.abilities == ("complete", "perplexity", "embed", "features", "rerank", "classify_by_labels")
    (result,) = model.complete(["The film"], top=3, tokens=4)
    ids = torch.tensor(peer(published)("The film")["input_ids"])[None]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(published).eval()
    with torch.no_grad():
        shares = theirs(ids).logits[0, -1].softmax(0)
    np.testing.assert_allclose([piece.probability for piece in result.next], shares.topk(3).values.numpy(), rtol=1e-4)
    assert len(result.pieces) == 4
    assert not result.has_ended
    with pytest.raises(InputError, match="a text to continue in text 1; found one without tokens"):
        model.complete([""])
    (perplexity,) = model.perplexity(["the film was"])
    assert perplexity.pieces == len(model.tokenizer.encode("the film was")) - 1, "nothing is before the first"
    words = load_token_features(published, device="cpu").word_vectors([["the", "unfilmed", "film"]])
    assert words[0].shape == (3, 32)


def test_fine_tuning_adds_a_piece_at_the_start_between_texts_and_at_the_end(published: Path, tmp_path: Path) -> None:
    before = load_any(published)
    folder = with_special_pieces(before)
    assert with_special_pieces(folder) is folder
    tokenizer, count = folder.require_tokenizer(), before.config.vocab_size
    assert tokenizer.vocabulary.pieces[count:] == ("_start_", "_delimiter_", "_classify_")
    rows = pack_rows([[7, 8]], [[9]], template=tokenizer.template, max_length=16)
    assert rows.token_ids.tolist() == [count, 7, 8, count + 1, 9, count + 2]
    name = "bert.embeddings.word.weight"
    assert torch.equal(folder.tensors[name][:count], before.tensors[name])
    assert folder.tensors[name].shape == (count + 3, 32)
    assert tokenizer.encode("_start_ the").tolist() == before.require_tokenizer().encode("_start_ the").tolist()

    data = TaskData(train=examples_of("pair", 32), dev=examples_of("pair", 8, seed=1))
    settings = FinetuningSettings(batch_size=16, epochs=2, language_model_loss=0.5, precision="fp32", dropout=0.0)
    finetune(published, SPECS["pair"], data, tmp_path / "run", settings, RecipeSettings(), seeds=1)
    trained = load_any(tmp_path / "run" / "model")
    assert (trained.config.vocab_size, trained.parts) == (count + 3, ("classifier",))
    assert trained.require_tokenizer().template == tokenizer.template
    model = load(tmp_path / "run" / "model", device="cpu")
    assert model.tokens([("the film", "a film")]) == [len(tokenizer.encode("the film a film")) + 3]
    recorded = json.loads((tmp_path / "run/predictions.jsonl").read_text().splitlines()[0])["prediction"]
    (answer,) = model.classify([(data.dev[0].first, data.dev[0].second)])
    assert answer.to_dict()["probabilities"] == pytest.approx(recorded["probabilities"], abs=1e-4)
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "run" / "model", trust_remote_code=True)
    assert theirs.config.vocab_size == count + 3
