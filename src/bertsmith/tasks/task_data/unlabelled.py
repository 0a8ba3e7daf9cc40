"""Examples without labels, from a file of a task or from lines."""

from pathlib import Path

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.task_files import columns_for, read_examples
from bertsmith.tasks.task_data.typed_examples import example_of_line
from bertsmith.text.documents.encodings import EncodingSettings

LINES = (".txt", "")  # endings of files with one example on each line


def read_unlabelled(path: Path, name: str, spec: TaskSpec, columns: ColumnSettings) -> list[Example]:
    """The examples of a file without their labels: lines as `predict` reads them, or a file of the task.

    Args:
        name: of the task, as in `finetune`.

    Raises:
        BertsmithError: there is no such file, or no example in it.
    """
    if path.suffix.lower() not in LINES:
        columns = columns_for(spec.columns, path, columns, gold=False)
        return list(read_examples(name, path, columns, gold=False, scheme=spec.scheme).examples)
    if not path.is_file():
        raise InputError(expected=f"examples without labels in '{path}'", found="no such file", fix="check the path")
    examples, empty = list[Example](), 0
    lines = TextLines(path, reading=EncodingSettings(encoding=columns.encoding), may_drop=False)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            examples.append(example_of_line(spec, line, number, f"'{path}'"))
        else:
            empty += 1
    lines.tell_notes()
    if empty:
        tell(f"{path}: {counted(empty, 'empty line')} left out")
    if not examples:
        raise ConfigError(expected=f"examples without labels in '{path}'", found="none", fix="name another file")
    return examples
