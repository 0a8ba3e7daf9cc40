"""The picture of the family is drawn, is shown on its page, and has every system that the page has a command for."""

import re
import shlex
from pathlib import Path

import family_picture

from bertsmith.app.cli.commands import COMMANDS
from bertsmith.models.checkpoints.architectures import ARCHITECTURES

PAGE = Path(__file__).parents[2] / "docs" / "family.md"


def test_the_picture_is_drawn_and_shown(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["family_picture.py", str(tmp_path / "family.svg")])
    family_picture.main()
    drawn = (tmp_path / "family.svg").read_text(encoding="utf-8")
    committed = family_picture.PICTURE.read_text(encoding="utf-8")
    for name in family_picture.FAMILY:
        assert name in drawn
        assert name in committed
    assert f"]({family_picture.PICTURE.name})" in PAGE.read_text(encoding="utf-8")


def test_every_architecture_is_in_the_family_and_nobody_descends_from_the_future() -> None:
    names = {architecture.config.display_name for architecture in ARCHITECTURES.values()}
    assert names <= set(family_picture.FAMILY)
    for system in family_picture.FAMILY.values():
        assert all(family_picture.FAMILY[parent].year <= system.year for parent in system.parents)


def test_each_of_the_29_systems_is_in_the_picture_and_has_a_command_that_exists() -> None:
    rows = re.findall(
        r"^\| \[(.+?)\]\((.+?)\) \|.*\| `bertsmith (.+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) == len({name for name, *_ in rows}) == 29
    assert {name for name, *_ in rows} <= set(family_picture.FAMILY)
    reference = (PAGE.parent / "commands.md").read_text(encoding="utf-8")
    names = [command.name for command in COMMANDS]
    for _, page, line in rows:
        assert (PAGE.parent / page.partition("#")[0]).is_file(), page
        typed = shlex.split(line)
        name = " ".join(typed[:2]) if " ".join(typed[:2]) in names else typed[0]
        assert name in names, line
        options = reference.partition(f"## bertsmith {name}\n")[2].partition("\n## ")[0]
        for option in (word for word in typed if word.startswith("--")):
            assert re.search(rf"{option}\b", options), (line, option)
