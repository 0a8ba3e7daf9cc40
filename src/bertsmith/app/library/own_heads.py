"""Load the class of a head from the user's Python file; see `OwnHead`."""

import importlib.util
import sys
from pathlib import Path

from bertsmith.base.core.errors import ConfigError, InputError, nearest
from bertsmith.base.storage.files import require_file
from bertsmith.models.heads.own_head import OwnHead, require_own_head

_MODULE = "bertsmith_own_head"  # the file's name as a module, so that it hides no installed one


def head_from_file(location: str) -> type[OwnHead]:
    """The class at FILE:CLASS, such as `my_head.py:MyHead`. The file is executed.

    Args:
        location: the path of a Python file, a colon, and the name of a subclass of `OwnHead` in it.
    """
    file, _, name = location.rpartition(":")
    if not file or not name.isidentifier():
        raise ConfigError(expected="a head as FILE:CLASS", found=repr(location), fix="write it like my_head.py:MyHead")
    path = Path(file)
    require_file(path, "the Python file of a head")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise InputError(expected="the Python file of a head", found=f"'{path}'", fix="name a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # where dataclasses and pickle look for it
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(
            expected=f"Python in '{path}'", found=f"{error.msg} in line {error.lineno}", fix="correct the file"
        ) from None
    if not hasattr(module, name):
        heads = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, OwnHead)]
        known = [key for key in heads if key != OwnHead.__name__]
        fix = nearest(name, known) if known else "write a subclass of bertsmith.OwnHead there"
        raise ConfigError(expected=f"a class {name} in '{path}'", found="none", fix=fix)
    return require_own_head(getattr(module, name))
