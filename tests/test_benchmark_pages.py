"""Every benchmark is described on its page, and every file of results belongs to a script."""

from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
NOT_NAMED_AFTER_A_SCRIPT = ("compare_", "starter_")  # the page says what writes them


def test_every_script_that_can_be_run_is_on_the_page() -> None:
    page = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    scripts = [path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")]
    assert scripts
    assert [name for name in sorted(scripts) if f"`{name}`" not in page] == []


def test_every_file_of_results_belongs_to_a_script() -> None:
    starts = (*(f"{path.stem}_" for path in BENCHMARKS.glob("*.py")), *NOT_NAMED_AFTER_A_SCRIPT)
    results = [path.name for path in (BENCHMARKS / "results").iterdir()]
    assert results
    assert [name for name in sorted(results) if not name.startswith(starts)] == []
