"""The page about the flags of the original scripts names every flag, and only options and defaults that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from bertsmith.app.cli.app import application
from bertsmith.app.cli.commands import COMMANDS
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.specs.named_tasks import default_settings
from bertsmith.tasks.specs.task import TaskSettings
from bertsmith.training.pretraining.settings import PretrainingDataSettings

PAGE = (Path(__file__).parents[2] / "docs" / "original-scripts.md").read_text(encoding="utf-8")
CHECKPOINT = "bert_config_file vocab_file init_checkpoint do_lower_case"
TPU = "use_tpu tpu_name tpu_zone gcp_project master num_tpu_cores iterations_per_loop"
TRAINING = """output_dir do_train do_predict train_batch_size predict_batch_size learning_rate num_train_epochs
    warmup_proportion save_checkpoints_steps"""
SHARED = set(f"{CHECKPOINT} {TPU} {TRAINING}".split())
# All flags that the scripts define, from their source.
FLAGS = {
    "run_classifier.py": f"data_dir task_name max_seq_length do_eval eval_batch_size {CHECKPOINT} {TPU} {TRAINING}",
    "run_squad.py": f"""train_file predict_file max_seq_length doc_stride max_query_length n_best_size max_answer_length
        verbose_logging version_2_with_negative null_score_diff_threshold {CHECKPOINT} {TPU} {TRAINING}""",
    "create_pretraining_data.py": """input_file output_file vocab_file do_lower_case do_whole_word_mask max_seq_length
        max_predictions_per_seq random_seed dupe_factor masked_lm_prob short_seq_prob""",
    "run_pretraining.py": f"""bert_config_file input_file output_dir init_checkpoint max_seq_length
        max_predictions_per_seq do_train do_eval train_batch_size eval_batch_size learning_rate num_train_steps
        num_warmup_steps save_checkpoints_steps max_eval_steps {TPU}""",
    "extract_features.py": """input_file output_file layers bert_config_file max_seq_length init_checkpoint vocab_file
        do_lower_case batch_size use_tpu master num_tpu_cores use_one_hot_embeddings""",
}


def rows_of(script: str) -> dict[str, tuple[str, str]]:
    """The default and the replacement of each flag in the table of a script."""
    section = PAGE.split(f"## {script}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `--(\w+)` \| (.*?) ?\| (.*) \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| `--"), "every row has three cells"
    return {flag: (default, here) for flag, default, here in rows}


def options_of(command: str) -> set[str]:
    parameters = get_command(application(command)).commands[command].params
    return {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("script", FLAGS)
def test_every_flag_of_a_script_has_a_row(script: str) -> None:
    wanted = set(FLAGS[script].split())
    assert set(rows_of(script)) == (wanted - SHARED if script == "run_squad.py" else wanted)


@pytest.mark.parametrize("script", FLAGS)
def test_a_row_names_commands_and_options_that_exist(script: str) -> None:
    names = {command.name for command in COMMANDS}
    options: dict[str, set[str]] = {}
    for flag, (_, here) in rows_of(script).items():
        quoted = re.findall(r"`([a-z]+)(?: (--[a-z-]+))?`", here)
        assert quoted or here.startswith("not needed"), flag
        for command, option in quoted:
            assert command in names, flag
            if option:
                options.setdefault(command, options_of(command))
                assert option in options[command], f"{flag}: {command} {option}"


@pytest.mark.parametrize(
    ("script", "flag", "ours"),
    [
        ("run_classifier.py", "max_seq_length", default_settings("mrpc").max_length),
        ("run_classifier.py", "train_batch_size", FinetuningSettings().batch_size),
        ("run_classifier.py", "num_train_epochs", FinetuningSettings().epochs),
        ("run_classifier.py", "learning_rate", RecipeSettings().learning_rate),
        ("run_classifier.py", "warmup_proportion", RecipeSettings().warmup_share),
        ("run_squad.py", "max_seq_length", default_settings("squad").max_length),
        ("run_squad.py", "doc_stride", TaskSettings().stride),
        ("run_squad.py", "max_query_length", TaskSettings().max_question),
        ("run_squad.py", "max_answer_length", TaskSettings().max_answer),
        ("run_squad.py", "n_best_size", TaskSettings().n_best),
    ],
)
def test_a_default_on_the_page_is_the_default_of_the_option(script: str, flag: str, ours: Any) -> None:
    default, here = rows_of(script)[flag]
    said = re.search(r"`, (\S+)", here)
    assert said, here
    assert float(default) == float(said[1]) == ours


def test_the_instances_are_drawn_with_the_defaults_of_the_original() -> None:
    rows, ours = rows_of("create_pretraining_data.py"), PretrainingDataSettings()
    result = (ours.max_length, ours.dupe_factor, ours.masked_share, ours.short_sequence_probability, ours.seed)
    flags = ("max_seq_length", "dupe_factor", "masked_lm_prob", "short_seq_prob", "random_seed")
    assert tuple(float(rows[flag][0]) for flag in flags) == result
    assert not ours.whole_word
