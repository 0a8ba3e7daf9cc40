"""A GPT with byte pairs from a text file to a fine-tuned model: learned, read by other tools, resumed, refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith import load
from bertsmith.app.library.vocabulary import learn_vocabulary
from bertsmith.base.core.errors import ConfigError, CorpusError, InputError
from bertsmith.models.checkpoints.google import write_google
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.tokenizer_files import read_tokenizer_file
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from tasks.task_samples import SPECS, examples_of
from training.interruptions import assert_same_files, killed_at_evaluation

TEXT = ["Let's hang out with friends.", "We hang out at home.", "The camera hung on the wall.", "They hung it up."]
SMALL = {"size": "tiny", "rows_per_step": 8, "max_length": 24, "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, the byte pairs learned from it, and a corpus of them."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(0)
    documents = ["\n".join(rng.choice(TEXT, 6)) for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    learned = learn_vocabulary([folder / "text.txt"], 60, method="bpe")
    assert learned.report.total.unknown == 0
    assert 1 < learned.report.total.pieces_per_word < 2
    assert learned.report.total.covered_rate == 1
    learned.save(folder / "tokenizer.json")
    tokenizer = read_tokenizer_file(folder / "tokenizer.json")
    assert tokenizer.settings == learned.tokenizer.settings
    build_corpus([folder / "text.txt"], tokenizer, folder / "corpus", held_out=0.1, workers=1)
    return folder


@pytest.mark.parametrize("rules", ["huggingface", "unspaced"])
def test_lower_case_keeps_marks_that_are_letters_and_removes_accents(rules: str, tmp_path: Path) -> None:
    text = "ที่นี่ ผู้ น้ำ हिन्दी 한국 ガギグ café"
    (tmp_path / "text.txt").write_text("\n".join([text] * 20), encoding="utf-8")
    learned = learn_vocabulary([tmp_path / "text.txt"], 100, method="bpe", rules=rules)
    tokenizer = learned.tokenizer
    assert tokenizer.vocabulary.unk_id not in tokenizer.encode(text.upper())
    assert tokenizer.decode(tokenizer.encode(text.upper())) == text.replace("é", "e")
    assert learned.report.total.unknown == 0
    with pytest.raises(ConfigError, match="huggingface or unspaced for byte pairs"):
        learn_vocabulary([tmp_path / "text.txt"], 100, method="bpe", rules="google")


def trained(folder: Path, out: Path, *, resume: bool = False, **options: object) -> Path:
    settings = {**SMALL, "architecture": "openai-gpt", **options}
    pretrain(folder / "corpus", out, *settings_from_recipe(settings), resume=resume)
    return out / "model"


@pytest.fixture(scope="module")
def gpt(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(folder, tmp_path_factory.mktemp("gpt") / "run", steps=40)


def test_a_corpus_keeps_its_tokenizer_for_any_number_of_workers(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(folder / "corpus", verify=True)
    assert isinstance(corpus.tokenizer, PipelineTokenizer)
    held_out = corpus.held_out(verify=True)
    assert held_out.tokenizer.decode(held_out.document_tokens(0)).startswith(("let", "we", "the"))
    settings = CorpusSettings(held_out=0.1)
    build_corpus([folder / "text.txt"], corpus.tokenizer, tmp_path / "other", **vars(settings), workers=2)
    assert (tmp_path / "other/corpus.json").read_bytes() == (folder / "corpus/corpus.json").read_bytes()
    description = json.loads((tmp_path / "other/tokenizer.json").read_text())
    description["model"]["merges"].pop()
    (tmp_path / "other/tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(CorpusError, match=r"as it was when the corpus was built .* found another file"):
        Corpus.open(tmp_path / "other")


def test_ids_and_logits_are_those_of_transformers(gpt: Path) -> None:
    text = "Let's hang out, friends: zebras!"
    theirs = transformers.AutoTokenizer.from_pretrained(gpt)
    model = load(gpt, device="cpu")
    ids = theirs(text)["input_ids"]
    tokenizer = model.tokenizer
    assert ids == [*tokenizer.template.start, *tokenizer.encode(text).tolist(), *tokenizer.template.end]
    assert tokenizer.vocabulary.unk_id in ids
    network = transformers.AutoModelForCausalLM.from_pretrained(gpt).eval()
    start = theirs("Let's hang", add_special_tokens=True)["input_ids"][:-1]
    with torch.no_grad():
        shares = network(torch.tensor([start])).logits[0, -1].softmax(0)
    (result,) = model.complete(["Let's hang"], top=3, tokens=1)
    np.testing.assert_allclose([guess.probability for guess in result.next], shares.topk(3).values.numpy(), rtol=1e-4)
    assert result.continuation == " out"
    (perplexity,) = model.perplexity(["we hang out at home."])
    assert perplexity.perplexity < 10


def test_a_run_that_is_resumed_ends_with_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    options = {"steps": 6, "save_every": 2, "evaluate_every": 2}
    straight = trained(folder, tmp_path / "straight", **options)
    settings = settings_from_recipe({**SMALL, "architecture": "openai-gpt", **options})
    with killed_at_evaluation(2):
        pretrain(folder / "corpus", tmp_path / "resumed", *settings)
    resumed = trained(folder, tmp_path / "resumed", resume=True, **options)
    assert_same_files(straight, resumed, "model.safetensors", "tokenizer.json")


def test_it_is_fine_tuned_on_texts_and_pairs_and_bert_reads_byte_pairs_too(
    folder: Path, gpt: Path, tmp_path: Path
) -> None:
    data = TaskData(train=examples_of("pair", 32), dev=examples_of("pair", 8, seed=1))
    settings = FinetuningSettings(batch_size=16, epochs=1, precision="fp32")
    bert = trained(folder, tmp_path / "bert", architecture="bert", steps=3)
    for number, start in enumerate((gpt, bert)):
        finetune(start, SPECS["pair"], data, tmp_path / f"run{number}", settings, RecipeSettings(), seeds=1)
        model = load(tmp_path / f"run{number}" / "model", device="cpu")
        assert model.tokenizer.vocabulary.digest == load_any(gpt).require_tokenizer().vocabulary.digest
        assert len(model.classify([(example.first, example.second) for example in data.dev])) == 8
    tuned = load_any(bert)
    with pytest.raises(ConfigError, match="WordPieces, the only ones that Google's code reads"):
        write_google(tmp_path / "google", config=tuned.config, tensors=tuned.tensors, tokenizer=tuned.tokenizer)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"architecture": "elmo"}, "WordPieces for ELMo, which reads how a piece is spelled"),
        ({"architecture": "bert", "whole_word": True}, "WordPieces for masks of whole words"),
    ],
)
def test_what_needs_wordpieces_is_refused(folder: Path, tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        trained(folder, tmp_path / "run", steps=2, **options)


def test_tokenizers_that_make_no_rows_are_refused(folder: Path, tmp_path: Path) -> None:
    description = json.loads((folder / "tokenizer.json").read_text())
    template = {"type": "TemplateProcessing", "special_tokens": {}}
    texts = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    bare = {**description, "added_tokens": [], "post_processor": {**template, "single": texts[:1], "pair": texts}}
    (tmp_path / "bare.json").write_text(json.dumps(bare).replace("[UNK]", "<unk>"))
    with pytest.raises(ConfigError, match="pieces for the start and the end of a row, for a corpus"):
        build_corpus([folder / "text.txt"], read_tokenizer_file(tmp_path / "bare.json"), tmp_path / "corpus")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="expected a vocabulary in"):
        read_tokenizer_file(tmp_path)
    with pytest.raises(ConfigError, match=r"a tokenizer\.json at"):
        read_tokenizer_file(tmp_path / "other.json")
