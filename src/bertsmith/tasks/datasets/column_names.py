"""The names that columns of texts, labels and ids usually have, and how messages show the columns of a file."""

from collections.abc import Collection, Iterable, Mapping

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.tasks.datasets.values import brief

SHOWN_COLUMNS = 12  # in a message
TEXT_COLUMNS = (
    "text sentence query question message review comment comment_text content tweet post body document utterance claim "
    "text1 text_a sentence1 sentence_a premise question1 title headline"
).split()
# For search, in order of preference: the usual names of long texts come first.
PASSAGE_COLUMNS = list(
    dict.fromkeys(["text", *"passage contents content body abstract document paragraph".split(), *TEXT_COLUMNS])
)
PAIR_COLUMNS = (
    ("text", "text2"),
    ("text", "text_pair"),
    ("text", "pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence", "sentence2"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "answer"),
    ("query", "document"),
    ("query", "passage"),
    ("claim", "evidence"),
)
LABEL_COLUMNS = (
    "label labels class classes category categories gold_label target sentiment intent topic tags cats accept".split()
)
NUMBER_COLUMNS = "score label rating similarity relatedness_score value target stars".split()
ID_COLUMNS = "id guid index idx pair_id".split()


def plain_name(name: str) -> str:
    """The name of a column as it is compared with known ones: lower case, with underscores."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def show_columns(names: Iterable[str]) -> str:
    """Column names for a message, shortened if there are many."""
    listed = [brief(name) for name in names]
    rest = f" and {len(listed) - SHOWN_COLUMNS} more" if len(listed) > SHOWN_COLUMNS else ""
    return "columns " + ", ".join(listed[:SHOWN_COLUMNS]) + rest


def first_known(named: Mapping[str, str], known: Iterable[str]) -> str | None:
    """The column with the first known name that there is; None if there is none.

    Args:
        named: the columns by their `plain_name`.
    """
    return next((named[name] for name in known if name in named), None)


def missing_column(name: str, table: str, columns: Collection[str]) -> InputError:
    """The error for a column that a table or a record lacks."""
    return InputError(
        expected=f"the column {name!r} in {table}", found=show_columns(columns), fix=nearest_column(name, columns)
    )


def nearest_column(name: str, columns: Collection[str]) -> str:
    """The fix for an unknown column: the nearest name, unless there are more columns than a message shows."""
    return nearest(name, columns) if 0 < len(columns) <= SHOWN_COLUMNS else "name one of the columns"
