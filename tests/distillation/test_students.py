"""What a student starts from: layers of the teacher, a DistilBERT that other libraries read, new models."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith.base.core.errors import ConfigError, VocabularyError
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.distilbert import DistilBertConfig
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.recipes.distillation.students import as_distilbert, student_of, with_layers
from bertsmith.recipes.distillation.task_teaching import comparable
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import write_folder
from model.examples import shake
from tasks.architecture_samples import config_of, tokenizer_of
from tasks.architecture_samples import write_base_model as write_architecture
from tasks.task_samples import CONFIG, TOKENIZER, WORDS

ROWS = Batch.from_flat(np.array([2, 7, 8, 3, 2, 9, 3]), np.zeros(7, np.int64), [4, 3])


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    model = untrained(dataclasses.replace(CONFIG, num_hidden_layers=4), 5)
    shake(model)
    save_pretrained(tmp_path / "teacher", model, TOKENIZER, ModelMetadata(task="pretraining", tokens=10))
    return tmp_path / "teacher"


def test_a_student_has_the_chosen_layers_of_its_teacher(teacher: Path) -> None:
    folder = load_any(teacher)
    student = student_of(folder, layers="1,4")
    assert student.layers == (1, 4)
    assert student.folder.config == dataclasses.replace(folder.config, num_hidden_layers=2)
    whole, half = (load_pretrained(source).model.encoder for source in (folder, student.folder))
    for name, parameter in half.named_parameters():
        source = name.replace("layers.1.", "layers.3.")
        assert torch.equal(parameter, whole.get_parameter(source)), name
    # The states below the first layer that is left out are those of the teacher.
    theirs, ours = Trace(), Trace()
    whole(ROWS, trace=theirs)
    half(ROWS, trace=ours)
    assert torch.equal(theirs.hidden_states[1], ours.hidden_states[1])


def test_a_convolution_stays_next_to_the_first_layer(tmp_path: Path) -> None:
    config = dataclasses.replace(config_of("deberta-v2"), num_hidden_layers=3, conv_kernel_size=3)
    tokenizer = tokenizer_of("deberta-v2")
    save_pretrained(tmp_path / "teacher", untrained(config, 5, tokenizer.vocabulary), tokenizer, ModelMetadata())
    folder = load_any(tmp_path / "teacher")
    whole, half = (
        load_pretrained(source).model.encoder for source in (folder, student_of(folder, layers="2,3").folder)
    )
    for name, parameter in half.named_parameters():
        source = name if "convolution" in name else name.replace("layers.1.", "layers.2.").replace("rs.0.", "rs.1.")
        assert torch.equal(parameter, whole.get_parameter(source)), name
    assert any("convolution" in name for name, _ in half.named_parameters())


def test_a_student_of_shared_layers_uses_them_less_often(tmp_path: Path) -> None:
    config = dataclasses.replace(config_of("albert"), num_hidden_layers=3, num_hidden_groups=1)
    model = untrained(config, 5, tokenizer_of("albert").vocabulary)
    save_pretrained(tmp_path / "teacher", model, tokenizer_of("albert"), ModelMetadata(task="pretraining"))
    folder = load_any(tmp_path / "teacher")
    student = student_of(folder, layers="2,3")
    assert student.folder.config == dataclasses.replace(config, num_hidden_layers=2)
    theirs, ours = Trace(), Trace()
    load_pretrained(folder).model.encoder(ROWS, trace=theirs)
    load_pretrained(student.folder).model.encoder(ROWS, trace=ours)
    assert torch.equal(theirs.hidden_states[2], ours.hidden_states[2])


def test_layers_that_no_other_ones_can_replace_are_refused(tmp_path: Path) -> None:
    write_architecture(tmp_path / "modernbert", "modernbert")
    modern = load_any(tmp_path / "modernbert")
    with pytest.raises(ConfigError, match=r"the lowest layers of ModernBERT.*layers 1, 3 of the.*--layers 1,2"):
        student_of(modern, layers="1,3")
    assert student_of(modern, layers="2").folder.config.num_hidden_layers == 2
    write_architecture(tmp_path / "albert", "albert")
    with pytest.raises(ConfigError, match="found 2 sets of parameters in 3 layers; use --student bilstm or"):
        student_of(load_any(tmp_path / "albert"), layers="2")
    write_architecture(tmp_path / "bilstm", "bilstm")
    with pytest.raises(ConfigError, match="a teacher with Transformer layers; found BiLSTM"):
        student_of(load_any(tmp_path / "bilstm"), layers="2")


def test_a_distilbert_starts_with_the_embeddings_of_single_texts_and_loads_elsewhere(
    teacher: Path, tmp_path: Path
) -> None:
    folder = load_any(teacher)
    student = as_distilbert(with_layers(folder, (2, 3)))
    assert isinstance(student.config, DistilBertConfig)
    write_folder(tmp_path / "student", student)
    read = load_pretrained(load_any(tmp_path / "student"))
    assert read.new_heads == ("pooler",)
    theirs, ours = Trace(), Trace()
    load_pretrained(folder).model.encoder(ROWS, trace=theirs)
    output = read.model(ROWS, masked=torch.arange(7), trace=ours)
    torch.testing.assert_close(ours.hidden_states[0], theirs.hidden_states[0])
    peer = transformers.DistilBertForMaskedLM.from_pretrained(tmp_path / "student").eval()
    with torch.no_grad():
        logits = [peer(input_ids=torch.tensor([row])).logits[0] for row in ([2, 7, 8, 3], [2, 9, 3])]
    torch.testing.assert_close(output.mlm_logits, torch.cat(logits), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "layers", "width"), [("1x16", 1, 16), ("tinybert", 4, 312), ("tiny", 2, 128), ("bilstm", 1, 32)]
)
def test_a_new_student_has_the_pieces_of_its_teacher(teacher: Path, name: str, layers: int, width: int) -> None:
    student = student_of(load_any(teacher), name, seed=3)
    config = student.folder.config
    assert student.is_new
    assert (config.num_hidden_layers, config.hidden_size) == (layers, width)
    assert config.vocab_size == CONFIG.vocab_size
    again = student_of(load_any(teacher), name, seed=3).folder.tensors
    assert all(torch.equal(again[key], value) for key, value in student.folder.tensors.items())
    other = student_of(load_any(teacher), name, seed=4).folder.tensors
    assert any(not torch.equal(other[key], value) for key, value in student.folder.tensors.items())


@pytest.mark.parametrize(("name", "heads"), [("tinybert", 4), ("1x16", 4), ("1x18", 1), ("tiny", 4)])
def test_where_attention_is_compared_a_new_student_has_the_heads_of_its_teacher(
    teacher: Path, name: str, heads: int
) -> None:
    """The teacher has 4; where they cannot share the width, the usual number stays, and the comparison is refused."""
    folder = load_any(teacher)
    usual, matched = student_of(folder, name), student_of(folder, name, same_heads=True)
    assert matched.folder.config.num_attention_heads == heads
    is_changed = usual.folder.config.num_attention_heads != heads
    assert ("with the 4 attention heads of the teacher instead of" in matched.about) == is_changed
    if heads != 4:
        with pytest.raises(
            ConfigError,
            match="must be 4, the attention heads of its teacher, not 1; choose a width that 4 heads divide",
        ):
            comparable(matched.folder.config, folder.config, attention=True)


def test_the_word_vectors_of_a_bilstm_are_those_of_the_teacher(teacher: Path) -> None:
    folder = load_any(teacher)
    table, name = student_of(folder, "bilstm").folder.tensors, "bert.embeddings.word.weight"
    assert table[name].std().item() == pytest.approx(1, rel=1e-3)
    cosines = torch.nn.functional.cosine_similarity(table[name], folder.tensors[name])
    torch.testing.assert_close(cosines, torch.ones(len(cosines)))


@pytest.mark.parametrize("architecture", ["albert", "modernbert", "mpnet", "deberta-v2", "roberta", "openai-gpt"])
def test_a_bilstm_is_written_with_the_pieces_of_any_teacher(architecture: str, tmp_path: Path) -> None:
    teacher = load_any(write_architecture(tmp_path / "teacher", architecture))
    student = student_of(teacher, "bilstm").folder
    write_folder(tmp_path / "student", student)
    theirs, ours = (source.require_tokenizer() for source in (teacher, load_any(tmp_path / "student")))
    assert ours.vocabulary.digest == theirs.vocabulary.digest
    text = ["the good film was a plot , annas ?"]
    np.testing.assert_array_equal(ours.encode_batch(text).ids, theirs.encode_batch(text).ids)


def test_layers_are_not_taken_where_there_are_none_or_they_share_parameters(tmp_path: Path) -> None:
    albert = load_any(write_architecture(tmp_path / "albert", "albert"))
    with pytest.raises(ConfigError, match="2 sets of parameters in 3 layers"):
        student_of(albert, layers="1")
    config = student_of(albert, "1x16").folder.config
    assert (config.num_hidden_layers, config.hidden_size) == (1, 16)
    elmo = load_any(write_architecture(tmp_path / "elmo", "elmo"))
    with pytest.raises(ConfigError, match="Transformer layers; found ELMo"):
        student_of(elmo, layers="1")


def test_a_student_with_other_pieces_or_rules_is_refused(teacher: Path, tmp_path: Path) -> None:
    pieces = Vocabulary([*SPECIAL_PIECES, *WORDS[::-1]])
    model = untrained(CONFIG, 0)
    save_pretrained(tmp_path / "pieces", model, WordPieceTokenizer(pieces), ModelMetadata())
    with pytest.raises(VocabularyError, match="other pieces"):
        student_of(load_any(teacher), str(tmp_path / "pieces"))
    cased = WordPieceTokenizer(TOKENIZER.vocabulary, dataclasses.replace(TOKENIZER.rules, lowercase=False))
    save_pretrained(tmp_path / "rules", model, cased, ModelMetadata())
    with pytest.raises(VocabularyError, match="other text rules"):
        student_of(load_any(teacher), str(tmp_path / "rules"))


def test_a_folder_with_the_pieces_of_the_teacher_is_a_student(teacher: Path, tmp_path: Path) -> None:
    folder = write_architecture(tmp_path / "other", "distilbert", seed=2)
    assert student_of(load_any(teacher), folder).folder.config.model_type == "distilbert"


def test_students_that_cannot_be_made_are_refused(teacher: Path, tmp_path: Path) -> None:
    folder = load_any(teacher)
    with pytest.raises(ConfigError, match="--layers needs a student that has layers"):
        student_of(folder, "bilstm", "1")
    lstm = load_any(write_architecture(tmp_path / "lstm", "awd-lstm"))
    with pytest.raises(ConfigError, match="a teacher with Transformer layers"):
        student_of(lstm)
    with pytest.raises(ConfigError, match="a bidirectional BERT as the teacher of a DistilBERT"):
        as_distilbert(load_any(write_architecture(tmp_path / "roberta", "roberta")))
