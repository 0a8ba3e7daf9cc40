"""The engine of `--engine`: this process, or a Ray cluster; the cluster itself is in `inference/cluster`."""

import functools
import importlib.util
import secrets

from bertsmith.base.core.errors import ConfigError

LOCAL, RAY = "local", "ray"


def is_cluster(engine: str) -> bool:
    """Whether an engine is a Ray cluster; False for this process.

    >>> is_cluster("local"), is_cluster("ray"), is_cluster("ray://10.0.0.7:6379")
    (False, True, True)
    """
    if engine == LOCAL:
        return False
    if engine != RAY and engine.removeprefix(f"{RAY}://") in (engine, ""):
        raise ConfigError(
            expected="an engine: local, ray, or ray://ADDRESS", found=repr(engine), fix="use ray for this machine"
        )
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            expected="the package ray for --engine ray",
            found="none",
            fix="install it: pip install 'bertsmith[ray]', or leave --engine out",
        )
    return True


def environment(engine: str = RAY) -> dict[str, str]:
    """The variables that Ray's own programs read when they start, if the user has not set them.

    Nothing is sent anywhere. A cluster of this machine is closed to its other users by a token that is not written to
    disk, and its workers get their share of a busy machine.
    """
    variables = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    if engine == RAY:
        variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token(), "RAY_worker_niceness": "0"}
    return variables


@functools.cache
def _token() -> str:
    """One for each process, because Ray reads it once."""
    return secrets.token_hex(32)
