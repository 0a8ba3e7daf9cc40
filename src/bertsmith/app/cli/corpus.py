"""Commands for corpora: build one from text, and check one."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    CasedOption,
    CorpusArgument,
    EngineOption,
    JsonOption,
    RulesOption,
    TextArguments,
    WorkersOption,
    note,
    print_json,
    say,
    settings_from,
)
from bertsmith.app.cli.text import ModelFolderOption, VocabularyOption, tokenizer_from
from bertsmith.base.core.requests import AS_IT_IS, COPIED
from bertsmith.base.core.settings import require, require_other
from bertsmith.base.storage.files import read_json, require_outside
from bertsmith.base.storage.uploads import is_staged, staged

EvaluationOption = Annotated[
    list[Path] | None,
    typer.Option("--evaluation", metavar="FILE", help="evaluation texts that should not be in the corpus; repeatable"),
    COPIED,
]


def corpus_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `corpus`."""
    from bertsmith.text.corpus.build import CorpusSettings
    from bertsmith.text.corpus.language_sampling import SamplingSettings

    return (CorpusSettings, SamplingSettings)


def corpus(
    texts: TextArguments,
    out: Annotated[Path, typer.Option(metavar="DIR", help="the corpus folder; must not exist yet"), AS_IT_IS],
    vocab: VocabularyOption = None,
    model: ModelFolderOption = None,
    cased: CasedOption = False,
    rules: RulesOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    resume: Annotated[
        bool, typer.Option("--resume", help="with --engine ray: resume an unfinished DIR; give the same options again")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="replace DIR when the new corpus is complete")] = False,
    evaluation: EvaluationOption = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "--weight",
            metavar="TEXT=W",
            help="how many times the training documents of a file or folder go into the corpus: 2 is twice, 0.5 is "
            "every second document; repeatable [1]",
        ),
    ] = None,
    **values: Any,
) -> None:
    """Build a corpus of token shards from text, with a report of the corpus checks.

    TEXT and DIR may be addresses such as s3://bucket/texts. With --engine ray, the workers of a cluster read and encode
    the text, and finished work is kept in DIR.partial: --resume continues after Ctrl-C, a crash or a full disk.
    """
    from bertsmith.base.processes.engines import is_cluster
    from bertsmith.inference.cluster.corpus import build_corpus_on
    from bertsmith.text.corpus.build import CorpusSettings, build_corpus
    from bertsmith.text.corpus.language_sampling import SamplingSettings
    from bertsmith.text.corpus.manifest import MANIFEST

    require_outside(out, [one for one in (vocab, model, *(evaluation or ())) if one is not None])
    tokenizer = tokenizer_from(vocab, model, cased, rules)
    settings = settings_from(CorpusSettings, values)
    sampling = settings_from(SamplingSettings, values)
    weights = _weights(weight or ())
    on_cluster = is_cluster(engine)
    is_made = resume and not replace and is_staged(out, MANIFEST)
    require_other(on_cluster or is_made or not resume, "--resume", "--engine ray")
    with staged(out, last=MANIFEST, replace=replace, inputs=texts) as place:
        options: dict[str, Any] = {"settings": settings, "sampling": sampling, "workers": workers, "weights": weights}
        if is_made:
            note(f"the corpus in '{place}' is complete; it is uploaded")
        elif on_cluster:
            build_corpus_on(engine, texts, tokenizer, place, replace=replace, resume=resume, **options)
        else:
            build_corpus(texts, tokenizer, place, replace=replace, **options)
        _print_report(place, evaluation)


def check(
    corpus: CorpusArgument,
    evaluation: EvaluationOption = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="config.json of the model that the corpus is for")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check a corpus: duplicates, single-sentence documents, unknown pieces, overlap with evaluation texts, entropy."""
    from bertsmith.models.checkpoints.architectures import read_config

    size = None if config is None else read_config(read_json(config)).vocab_size
    _print_report(corpus, evaluation, size, json)


def _weights(given: Sequence[str]) -> dict[str, float]:
    """The weights by file or folder, from TEXT=W; the last `=` separates.

    >>> _weights(["wiki=0.5", "a=b.txt=2"])
    {'wiki': 0.5, 'a=b.txt': 2.0}

    Raises:
        ConfigError: a part is missing, or W is not a number.
    """
    weights: dict[str, float] = {}
    for one in given:
        text, _, weight = one.rpartition("=")
        try:
            number = float(weight)
        except ValueError:
            number = math.nan
        require(
            bool(text) and math.isfinite(number) and text not in weights,
            expected="--weight with TEXT=W, once for each text",
            found=repr(one),
            fix="write --weight my-text=2",
        )
        weights[text] = number
    return weights


def _print_report(
    folder: Path, evaluation: list[Path] | None, model_vocabulary: int | None = None, json: bool = False
) -> None:
    from bertsmith.text.corpus.checks import check_corpus

    report = check_corpus(folder, evaluation or (), model_vocabulary=model_vocabulary)
    if json:
        print_json(report.to_dict())
    else:
        for line in report.lines():
            say(line)
