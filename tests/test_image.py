"""The files from which images are built: what they copy is there, and they run without rights what the server has."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from bertsmith.app.cli.commands import COMMANDS

ROOT = Path(__file__).parent.parent
COMMAND_NAMES = {command.name for command in COMMANDS}


def instructions() -> list[tuple[str, str]]:
    """Those of the Dockerfile with their arguments, each on one line."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, with those of the stage that it begins with."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for name, rest in instructions():
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            by_name[stage] = current = list(by_name.get(base, []))
        elif by_name:
            current.append((name, rest))
    return by_name


def argument_of(name: str, stage: str) -> str:
    return [rest for other, rest in stages()[stage] if other == name][-1]


def ignored() -> list[str]:
    return (ROOT / ".dockerignore").read_text(encoding="utf-8").split()


def test_what_the_image_copies_is_there_and_is_sent_to_the_builder():
    copied = [shlex.split(rest)[:-1] for name, rest in instructions() if name == "COPY"]
    sources = {source for words in copied if not words[0].startswith("--") for source in words}
    assert {"src", "pyproject.toml", "constraints.txt"} <= sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    sent = {line[1:] for line in ignored() if line.startswith("!")}
    assert {"docs/bertsmith.1" if source == "docs/" else source for source in sources} == sent
    of_stages = {re.search(r"--from=(\S+)", " ".join(words))[1] for words in copied if words[0].startswith("--from")}
    assert of_stages <= set(stages())


@pytest.mark.parametrize("stage", ["light", "full"])
def test_an_image_runs_a_command_as_a_user_without_rights_and_asks_it_for_its_health(stage):
    assert int(argument_of("USER", stage)) > 0
    assert json.loads(argument_of("ENTRYPOINT", stage)) == ["bertsmith"]
    command = json.loads(argument_of("CMD", stage))
    assert command[0] in COMMAND_NAMES
    check = json.loads(argument_of("HEALTHCHECK", stage).partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    ast.parse(check[2])
    port, path = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", check[2]).groups()
    assert port == command[command.index("--port") + 1] == argument_of("EXPOSE", stage)
    assert path in served_paths()


def served_paths() -> set[str]:
    source = (ROOT / "src/bertsmith/app/server/app.py").read_text(encoding="utf-8")
    return set(re.findall(r'@router\.get\("(/\w+)"', source))


def test_the_light_image_has_what_the_list_without_torch_has():
    installs = [rest for name, rest in stages()["build-light"] if name == "RUN" and "requirements/light.txt" in rest]
    assert len(installs) == 1
    assert "torch" not in installs[0]
    assert re.search(r"^torch\b", (ROOT / "requirements/light.txt").read_text(encoding="utf-8"), re.MULTILINE) is None


def test_torch_comes_without_cuda():
    """By a variable, which a stage has from the one that it begins with; an ARG alone does not reach it everywhere."""
    assert "PIP_EXTRA_INDEX_URL=${TORCH_INDEX}" in argument_of("ENV", "build-full")
    defaults = dict(rest.split("=") for name, rest in instructions() if name == "ARG" and "=" in rest)
    assert defaults["TORCH_INDEX"].endswith("/whl/cpu")


def test_services_build_a_stage_write_nothing_and_run_a_command():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert services.keys() == {"server", "worker"}
    for service in services.values():
        assert service["build"]["target"] in stages()
        assert service["command"][0] in COMMAND_NAMES
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["tmpfs"] == ["/tmp"]
        assert str(service.get("user", argument_of("USER", "light"))) not in ("0", "root")
    assert all(port.startswith("127.0.0.1:") for port in services["server"]["ports"])
