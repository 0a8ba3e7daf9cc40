"""Reader for conversations with replies, and the replies that are drawn as candidates next to the right one.

Any table has the columns `context` and `response`, or others of the usual names. A context is a text, or a list of
turns in JSON, which become lines. A column `candidates` holds a list in JSON; without it the candidates of a row are
its reply and others drawn from the file, see `drawn_replies.py`.
"""

from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import ID_COLUMNS, Row, first_known, plain_name, show_columns
from bertsmith.tasks.datasets.drawn_replies import FEWEST, different, draw_of, with_drawn, with_right_at
from bertsmith.tasks.datasets.examples import ChoiceExample, ExampleFile
from bertsmith.tasks.datasets.file_text import file_text, line_of, lines_of, quoted, suffix_of
from bertsmith.tasks.datasets.sequences import column_of, texts_in
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.text.documents.encodings import UTF_8

# In order of preference.
CONTEXT_COLUMNS = "context history dialogue dialog conversation turns query question source text anchor".split()
RESPONSE_COLUMNS = "response reply answer target positive".split()
CANDIDATE_COLUMNS = "candidates replies options endings".split()


def read_replies(
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    gold: bool = True,
    training: bool = False,
    candidates: int = 10,
    encoding: str = UTF_8,
) -> ExampleFile:
    """The contexts of a file with their candidates; with `gold`, one of them is the right reply.

    Args:
        text_column, label_column: the columns of contexts and replies; if None, guessed from common names.
        gold: every row has its reply; if False, rows have candidates or, in a file without that column, none.
        training: in a file without a column of candidates, the reply is the only one.
        candidates: of each row if they are drawn, with the reply.
    """
    rows = list(read_table(path, encoding=encoding))
    if not rows:
        raise InputError(expected=f"rows in {quoted(path)}", found="none", fix="name a file that holds examples")
    columns = list(rows[0].values)
    context = column_of(path, columns, text_column, CONTEXT_COLUMNS, "the contexts", "--text-column")
    others = [name for name in columns if name != context]
    reply = (
        column_of(path, columns, label_column, RESPONSE_COLUMNS, "the replies", "--label-column", context)
        if gold
        else ""
    )
    named = {plain_name(name): name for name in others if name != reply}
    listed, id_column = first_known(named, CANDIDATE_COLUMNS), first_known(named, ID_COLUMNS)
    unread = [name for name in others if name not in (reply, listed, id_column)]
    if unread or (context, reply or "response") != ("context", "response"):
        aim = f", replies from {reply!r}" if gold else ""
        tell(
            f"{quoted(path)}: contexts from {context!r}{aim}"
            + (f"; not read: {show_columns(unread)}" if unread else "")
        )
    examples = []
    for number, row in enumerate(rows):
        right = _text(row, reply) if gold else ""
        endings = different([*([right] if gold else []), *(texts_in(row, listed) if listed else ())])
        if listed and len(endings) < FEWEST:
            fewest = f"at least {FEWEST} different candidates"
            raise InputError.at(row.location, fewest, str(len(endings)), "add candidates, or remove the row")
        name = row.values.get(id_column or "", "") or str(number)
        example = ChoiceExample(
            id=name,
            context=_text(row, context, joined=True),
            endings=tuple(endings),
            label=0 if gold else None,
            location=row.location,
        )
        examples.append(with_right_at(example, draw_of("place", number).integers(len(endings))) if gold else example)
    if gold and not training and not listed:
        examples = with_drawn(examples, candidates - 1)
    return ExampleFile.of(examples, expected=f"rows in {quoted(path)}")


def read_reply_list(path: Path, encoding: str = UTF_8) -> list[str]:
    """The different replies of a file: its lines, or a column of a table; of equal ones, the first."""
    if suffix_of(path) in (".txt", ""):
        lines = enumerate(lines_of(file_text(path, kind="replies, one per line", encoding=encoding)), start=1)
        located = [(line_of(path, number), line) for number, line in lines]
        texts = [line for _, line in located if line.strip()]
    else:
        rows = list(read_table(path, encoding=encoding))
        column = (
            column_of(path, list(rows[0].values), None, [*RESPONSE_COLUMNS, "text"], "the replies", "") if rows else ""
        )
        texts = [_text(row, column) for row in rows]
    replies = different(texts)
    if len(replies) < FEWEST:
        raise InputError.at(quoted(path), f"at least {FEWEST} different replies", str(len(replies)), "add replies")
    if len(replies) < len(texts):
        tell(f"{quoted(path)}: {counted(len(texts) - len(replies), 'repeated reply', 'repeated replies')} left out")
    return replies


def _text(row: Row, column: str, *, joined: bool = False) -> str:
    """The text in a cell; with `joined`, the turns of a list as its lines."""
    texts = texts_in(row, column)
    if not texts or (len(texts) > 1 and not joined):
        raise InputError.at(
            row.location, f"a text in the column {column!r}", f"{len(texts)} texts" if texts else "none", "correct it"
        )
    return "\n".join(texts)
