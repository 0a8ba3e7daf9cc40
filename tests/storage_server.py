"""An S3 server on this machine, for tests of addresses."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="session")
def _server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    server.stop()


@pytest.fixture
def storage(_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file system of an empty bucket `texts`."""
    import s3fs

    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": _server, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    if system.exists("texts"):
        system.rm("texts", recursive=True)
    system.mkdir("texts")
    yield system
    s3fs.S3FileSystem.clear_instance_cache()
