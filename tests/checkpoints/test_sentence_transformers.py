"""The pooling configuration of a sentence-transformers folder, in the old and the new format."""

import json
from pathlib import Path

import pytest

from bertsmith.base.core.errors import BertsmithError, CheckpointError, InputError
from bertsmith.models.checkpoints.sentence_transformers import SentenceRecipe, read_recipe

ENCODER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALIZE = {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
OLD_MEAN = {
    "word_embedding_dimension": 32,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
}


def folder_of(path: Path, modules: list[dict[str, str]], pooling: object, **files: object) -> Path:
    """A folder without weights."""
    (path / "1_Pooling").mkdir()
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return path


def test_a_folder_of_another_kind_has_no_recipe(tmp_path):
    assert read_recipe(tmp_path) is None
    assert read_recipe(tmp_path / "absent") is None


def test_the_old_form_names_each_pooling_with_yes_or_no(tmp_path):
    length = {"max_seq_length": 256, "do_lower_case": False}
    folder = folder_of(tmp_path, [ENCODER, POOLING, NORMALIZE], OLD_MEAN, sentence_bert_config=length)
    assert read_recipe(folder) == SentenceRecipe(encoder=folder, pooling="mean", normalize=True, max_length=256)


@pytest.mark.parametrize("named", ["cls", "max", "mean", ["max"]])
def test_the_new_form_names_the_pooling(tmp_path, named):
    module = {"path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}
    folder = folder_of(tmp_path, [ENCODER, module], {"embedding_dimension": 32, "pooling_mode": named})
    recipe = read_recipe(folder)
    assert recipe == SentenceRecipe(encoder=folder, pooling=named if isinstance(named, str) else "max")


def test_in_the_new_form_the_length_is_in_the_tokenizer_configuration(tmp_path):
    folder = folder_of(
        tmp_path,
        [ENCODER, POOLING],
        OLD_MEAN,
        sentence_bert_config={"transformer_task": "feature-extraction"},
        tokenizer_config={"model_max_length": 10},
    )
    assert read_recipe(folder).max_length == 10


def test_the_encoder_may_be_in_its_own_folder(tmp_path):
    (tmp_path / "0_Transformer").mkdir()
    (tmp_path / "0_Transformer" / "sentence_bert_config.json").write_text(
        '{"max_seq_length": 7, "do_lower_case": true}'
    )
    folder = folder_of(tmp_path, [{**ENCODER, "path": "0_Transformer"}, POOLING], OLD_MEAN)
    recipe = read_recipe(folder)
    assert (recipe.encoder, recipe.max_length, recipe.lowercase) == (folder / "0_Transformer", 7, True)


def test_the_prompt_is_the_default_one(tmp_path):
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}
    folder = folder_of(tmp_path, [ENCODER, POOLING], OLD_MEAN, config_sentence_transformers=prompts)
    assert read_recipe(folder).prompt == "query: "
    prompts["default_prompt_name"] = None
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert read_recipe(folder).prompt == ""


@pytest.mark.parametrize(
    ("modules", "pooling", "named"),
    [
        ([ENCODER, POOLING, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}], OLD_MEAN, "Dense"),
        ([ENCODER, NORMALIZE], OLD_MEAN, "none"),
        ([ENCODER, POOLING], {"pooling_mode": []}, "none"),
        ([ENCODER, POOLING], {"pooling_mode": ["cls", "first"]}, "cls and first"),
        ([ENCODER, POOLING], {"pooling_mode": 3}, "3"),
        ([{**ENCODER, "path": "../other"}, POOLING], OLD_MEAN, "../other"),
        ([], OLD_MEAN, "something else"),
    ],
)
def test_unsupported_modules_are_refused_in_one_line(tmp_path, modules, pooling, named):
    with pytest.raises(CheckpointError) as caught:
        read_recipe(folder_of(tmp_path, modules, pooling))
    assert named in caught.value.found


@pytest.mark.parametrize("name", ["do_lower_case", "include_prompt"])
def test_a_flag_that_is_a_text_is_refused(tmp_path, name):
    said = {name: "false"}
    pooling = {"pooling_mode": "mean"} | (said if name == "include_prompt" else {})
    folder = folder_of(tmp_path, [ENCODER, POOLING], pooling, sentence_bert_config=said)
    with pytest.raises(CheckpointError, match=f"true or false as {name} in .*found 'false'"):
        read_recipe(folder)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({**OLD_MEAN, "pooling_mode_cls_token": True}, ("cls+mean", True)),
        ({"pooling_mode": ["mean", "lasttoken"], "include_prompt": False}, ("mean+lasttoken", False)),
    ],
)
def test_several_poolings_are_read_in_their_order(tmp_path, said, expected):
    recipe = read_recipe(folder_of(tmp_path, [ENCODER, POOLING], said))
    assert (recipe.pooling, recipe.pools_prompt) == expected


def test_a_damaged_file_is_named(tmp_path):
    folder = folder_of(tmp_path, [ENCODER, POOLING], OLD_MEAN)
    (folder / "modules.json").write_text("[{")
    with pytest.raises(InputError, match=r"modules\.json"):
        read_recipe(folder)
    (folder / "modules.json").write_text(json.dumps([ENCODER, POOLING]))
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(BertsmithError, match=r"1_Pooling.config\.json"):
        read_recipe(folder)
