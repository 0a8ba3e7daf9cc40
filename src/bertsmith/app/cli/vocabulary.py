"""The command that learns a vocabulary and reports its quality on each file."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    CasedOption,
    EngineOption,
    RulesOption,
    TextArguments,
    TextColumnOption,
    note,
    say,
    settings_from,
)
from bertsmith.base.core.requests import AS_IT_IS
from bertsmith.base.core.settings import require_other
from bertsmith.base.storage.files import write_json
from bertsmith.base.storage.locks import locked_file
from bertsmith.base.storage.outputs import TOKENIZER_FILE, VOCABULARY, VOCABULARY_REPORT, require_output
from bertsmith.base.storage.uploads import staged


def vocab_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `vocab`."""
    from bertsmith.text.documents.encodings import EncodingSettings
    from bertsmith.text.documents.languages import LanguageSettings

    return (LanguageSettings, EncodingSettings)


def vocab(
    texts: TextArguments,
    out: Annotated[Path, typer.Option(metavar="FILE", help="output file"), AS_IT_IS],
    size: Annotated[int, typer.Option(help="number of pieces, including the five special ones")] = 30522,
    cased: CasedOption = False,
    rules: RulesOption = None,
    method: Annotated[
        str, typer.Option(help="wordpiece, for a vocab.txt; or bpe, the byte pairs of GPT, for a tokenizer.json")
    ] = "wordpiece",
    column: TextColumnOption = "",
    character_coverage: Annotated[
        float,
        typer.Option(
            help="fraction of the text's characters that become pieces, no matter how much of --size they use up; a "
            "word with any other character becomes [UNK], so use 1 if Korean or Chinese is one of several languages"
        ),
    ] = 0.9995,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write the report to this file, as JSON")
    ] = None,
    engine: EngineOption = "local",
    resume: Annotated[
        bool, typer.Option("--resume", help="with --engine ray: resume an unfinished FILE; give the same options again")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="overwrite existing outputs")] = False,
    **values: Any,
) -> None:
    """Learn a vocabulary of exactly --size pieces and print its quality report.

    For each file, or with --languages for each language, the report gives the pieces per word and the fractions of
    unknown words, of covered characters and of words that are a single piece. With more than 20 files and
    --report, the rows for single files go only to that report. TEXT may be addresses such as s3://bucket. With --engine
    ray, each file is counted by one worker of a cluster, so split very large files; finished counts are kept in
    FILE.partial: --resume continues after Ctrl-C, a crash or a full disk.
    """
    from bertsmith.app.library.vocabulary import learn_vocabulary
    from bertsmith.base.processes.engines import is_cluster
    from bertsmith.inference.cluster.kept import Kept
    from bertsmith.text.documents.encodings import EncodingSettings
    from bertsmith.text.documents.languages import LanguageSettings

    on_cluster = is_cluster(engine)
    require_other(on_cluster or not resume, "--resume", "--engine ray")
    kind = TOKENIZER_FILE if method == "bpe" else VOCABULARY
    settings = settings_from(LanguageSettings, values)
    encoding = settings_from(EncodingSettings, values)
    with staged(out, replace=replace) as place:
        require_output(place, kind, inputs=texts, replace=replace)
        if report is not None:
            require_output(report, VOCABULARY_REPORT, inputs=texts, others=[out], replace=replace)
        with locked_file(place):
            state = place.with_name(f"{place.name}.partial")
            kept = Kept(state, "vocabulary", replace=replace, resume=resume) if on_cluster else None
            learned = learn_vocabulary(
                texts,
                size,
                cased=cased,
                rules=rules or "huggingface",
                column=column,
                method=method,
                languages=settings.languages,
                language_exponent=settings.language_exponent,
                encoding=encoding.encoding,
                bad_bytes=encoding.bad_bytes,
                character_coverage=character_coverage,
                engine=engine,
                kept=kept,
            )
            for line in learned.notes:
                note(line)
            learned.save(place)
            if kept is not None:
                kept.remove()
    if report is not None:
        write_json(report, dataclasses.asdict(learned.report))
    for line in learned.report.lines("" if report is None else str(report)):
        say(line)
