"""Numbers that cannot mean anything are refused at once, before anything is read."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import help_field, require_limits
from bertsmith.inference.search.request import SearchPassagesRequest
from bertsmith.models.parts.config import BertConfig
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.specs.task import TaskSettings
from bertsmith.text.corpus.build import CorpusSettings
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.run import PretrainingRunSettings
from bertsmith.training.pretraining.settings import PretrainingDataSettings

# Whole command lines; none of the files exists, so a command that reads first fails with another message.
ABSURD = {
    "vocab absent --out v.txt --size 100000000": "size must be at least 1 and at most 5,000,000, not 100,000,000",
    "vocab absent --out v.txt --size 0": "size must be at least 1 and at most 5,000,000, not 0",
    "pretrain corpus --out run --size tiny --steps 1 --rows-per-step 1000000000": "rows_per_step must be at most",
    "pretrain corpus --out run --size tiny --steps 1 --micro-tokens 1000000000000": "micro_tokens must be at most",
    "pretrain corpus --out run --size tiny --steps 1 --dupe-factor 1000000000": "dupe_factor must be at most 10,000",
    "pretrain corpus --out run --size tiny --steps 1 --max-length 1000000000": "max_length must be at most 1,000,000",
    "pretrain corpus --out run --size tiny --steps 1000000000000000": "steps must be at most 1,000,000,000",
    "pretrain corpus --out run --size tiny --minutes 1e300": "minutes must be at most 10,000,000",
    "pretrain corpus --out run --size tiny --minutes nan": "minutes must be a finite number above 0, not nan",
    "finetune --model starter --task spam --out run --epochs 1e18": "epochs must be at most 10,000",
    "finetune --model starter --task spam --out run --batch-size 1000000000000": "batch_size must be at most 1,000,000",
    "finetune --model starter --task spam --out run --max-length 1000000000": "max_length must be at most 1,000,000",
    "demo --minutes 1e300 --out run": "at most 10,000,000",
    "demo --minutes nan --out run": "minutes must be a finite number, not nan",
    "search texts --query q --bm25 --k1 inf": "k1 must be a finite number, not inf",
    "quantize --model absent --data absent --limit nan": "limit must be at least 0 and at most 1, not nan",
    "convert absent new --to google --limit -1": "--limit must be a number of at least 0, not -1.0",
    "convert absent new --to google --limit inf": "limit must be a finite number at least 0, not inf",
    "finetune --model starter --task spam --out run --learning-rate inf": "learning_rate must be a finite number",
    "serve --model absent --request-seconds inf": "request_seconds must be at most 1,000,000, not inf",
    "serve --model absent --write-seconds 1e10": "write_seconds must be at most 1,000,000, not 10,000,000,000.0",
    "serve --model absent --max-held 0": "max_held must be at least 1, not 0",
    "corpus texts --vocab vocab.txt --out new --workers 1000000": "workers must be at most 1,024",
}


@pytest.mark.parametrize("typed", ABSURD)
def test_an_absurd_number_is_refused_at_once_in_one_line(
    run, vocabulary: Path, tmp_path: Path, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("the man\n")
    before = sorted(tmp_path.rglob("*"))
    result = run(*typed.split())
    assert result.code in (1, 2)
    assert (result.out, result.err.count("\n")) == ("", 1)
    assert ABSURD[typed] in result.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["layer_norm_eps", "initializer_range"])
@pytest.mark.parametrize("value", [math.inf, math.nan, 0.0, -1e-12, 2.0])
def test_a_configuration_with_an_impossible_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be above 0 and at most 1"):
        BertConfig(**{name: value})


def test_a_model_with_an_infinite_epsilon_is_refused(run, model: Path) -> None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(config | {"layer_norm_eps": math.inf}), encoding="utf-8")
    run("fill", "--model", model, "the [MASK]").refuses("layer_norm_eps")


@pytest.mark.parametrize(
    "settings",
    [
        TrainSettings(steps=1),
        FinetuningSettings(),
        RecipeSettings(),
        TaskSettings(),
        PretrainingDataSettings(),
        PretrainingRunSettings(size="tiny"),
        SearchPassagesRequest("passages.txt", ["a query"], model="m"),
        CorpusSettings(),
        ServerSettings(),
    ],
    ids=lambda settings: type(settings).__name__,
)
def test_no_number_of_any_setting_is_infinite(settings: object) -> None:
    assert dataclasses.is_dataclass(settings)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float):
            for wrong in (math.inf, math.nan):
                with pytest.raises(ConfigError, match=rf"\b{field.name}\b.*(; found|, not)"):
                    dataclasses.replace(settings, **{field.name: wrong})


def test_the_limit_of_a_field_is_included() -> None:
    @dataclasses.dataclass
    class Settings:
        rows: int | None = help_field(None, "rows", most=10)
        on: bool = help_field(True, "a switch", most=0)

        def __post_init__(self) -> None:
            require_limits(self)

    assert Settings(rows=10).rows == 10
    with pytest.raises(ConfigError, match="rows must be at most 10, not 11"):
        Settings(rows=11)
