"""The command that learns a vocabulary and reports its quality on each file."""

from typing import TYPE_CHECKING

from bertsmith.app.cli.options import note, say

if TYPE_CHECKING:
    from bertsmith.text.documents.request import VocabularyRequest


def vocab(request: "VocabularyRequest") -> None:
    """Learn a vocabulary of exactly --size pieces and print its quality report.

    For each file, or with --languages for each language, the report gives the pieces per word and the fractions of
    unknown words, of covered characters and of words that are a single piece. With more than 20 files and
    --report, the rows for single files go only to that report. TEXT may be addresses such as s3://bucket. With --engine
    ray, each file is counted by one worker of a cluster, so split very large files; finished counts are kept in
    FILE.partial: --resume continues after Ctrl-C, a crash or a full disk.
    """
    from bertsmith.app.library.vocabulary import learn_vocabulary
    from bertsmith.base.core.requests import call

    learned = call(learn_vocabulary, request)
    for line in learned.notes:
        note(line)
    for line in learned.report.lines("" if request.report is None else str(request.report)):
        say(line)
