"""The picture of the family is drawn, is shown on its page, and has every architecture that can be trained."""

from pathlib import Path

import family_picture

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
    for one in family_picture.FAMILY.values():
        assert all(family_picture.FAMILY[parent].year <= one.year for parent in one.parents)
