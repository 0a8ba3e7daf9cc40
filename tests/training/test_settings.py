"""Invalid settings are refused in one line with three parts."""

import dataclasses
import re

import pytest

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import field_help, from_dict, to_dict
from bertsmith.training.loop.settings import MAY_CHANGE_ON_RESUME, TrainSettings


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, "expected one budget; found none"),
        ({"steps": 5, "minutes": 1.0}, "found steps and minutes"),
        ({"steps": 0}, "steps must be above 0, not 0"),
        ({"minutes": -1.0}, "minutes must be above 0, not -1.0"),
        ({"steps": 5, "learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"steps": 5, "warmup_share": 1.0}, "warmup_share must be at least 0 and below 1"),
        ({"steps": 5, "warmup_steps": 5}, "a warm-up shorter than the 5 steps"),
        ({"steps": 5, "warmup_steps": -1}, "warmup_steps must be at least 0"),
        ({"steps": 5, "optimizer": "lam"}, "did you mean 'lamb'"),
        ({"steps": 5, "schedule": "linear"}, "unknown schedule 'linear'"),
        ({"steps": 5, "weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"steps": 5, "save_every": 0}, "save_every must be above 0"),
        ({"steps": 5, "keep_checkpoints": 0}, "keep_checkpoints must be above 0"),
        ({"steps": 5, "beta2": 1.0}, "beta2 must be at least 0 and below 1"),
        ({"steps": 5, "clip_norm": float("nan")}, "clip_norm must be a finite number above 0"),
        ({"steps": 5, "seed": -1}, "seed must be at least 0"),
    ],
)
def test_an_impossible_setting_is_refused(values, found):
    with pytest.raises(ConfigError, match=re.escape(found)) as caught:
        TrainSettings(**values)
    assert caught.value.fix


def test_settings_come_back_from_plain_values():
    settings = TrainSettings(tokens=1000, optimizer="lamb")
    assert from_dict(TrainSettings, to_dict(settings), "a test") == settings


def test_the_2018_warm_up_is_ten_thousand_of_a_million_steps():
    assert TrainSettings(steps=1_000_000, warmup_share=0.01).warmup(1_000_000) == 10_000
    assert TrainSettings(steps=100, warmup_steps=7).warmup(100) == 7
    assert TrainSettings(steps=59, warmup_share=0.1).warmup(59) == 5, "cut off, as by int(steps * share)"
    assert TrainSettings(steps=9, warmup_share=0.1).warmup(9) == 0
    assert TrainSettings(steps=1).warmup(1) == 0


def test_every_setting_has_a_line_of_help():
    lines = {field.name: field_help(field).help for field in dataclasses.fields(TrainSettings)}
    assert all(lines.values())
    assert set(MAY_CHANGE_ON_RESUME) <= lines.keys()
