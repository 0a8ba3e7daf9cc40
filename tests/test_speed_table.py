"""The tables of encoding speed and latency in benchmarks/README.md are those of the committed results."""

import json
from pathlib import Path

import pytest
import speed_table

RATIO = {"median": 0.9, "lowest": 0.8, "highest": 1.25, "rounds": 3}
MACHINE = {"processor": "A processor", "packages": {"torch": "2.13.0", "openvino": "2026.4"}}
CASE = {
    "rows": 4,
    "real_tokens": 1000,
    "threads": 1,
    "day": "2026-11-25",
    "rounds": 3,
    "seconds": {
        "ours fp32": [1.0, 2.0, 3.0],
        "ours-plain fp32 best": [1.0, 1.5, 2.0],
        "openvino fp32 default": [2.0, 2.0, 2.0],
        "openvino fp32 best": [2.5, 2.5, 2.5],
        "onnxruntime fp32 best": [1.9, 1.9, 1.9],
    },
    "times_as_fast": {
        "ours-plain fp32 best": {**RATIO, "median": 0.75},
        "openvino fp32 default": {**RATIO, "median": 1.0},
        "openvino fp32 best": {**RATIO, "median": 1.25},
        "onnxruntime fp32 best": RATIO,
    },
}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results, which the tables are made from."""
    monkeypatch.setattr(speed_table, "RESULTS", tmp_path)
    return tmp_path


def write(results: Path, name: str, **parts: object) -> None:
    text = json.dumps({"benchmark": name, "day": "2026-11-25", "machine": MACHINE, **parts})
    (results / f"{name}.json").write_text(text, encoding="utf-8")


def test_the_page_has_the_tables_of_the_committed_results() -> None:
    text = speed_table.PAGE.read_text(encoding="utf-8")
    assert speed_table.page(text) == text, "run python tools/speed_table.py"


def test_ours_is_compared_with_the_fastest_peer_in_its_faster_setting(results: Path) -> None:
    write(results, "encode_speed_x", cases={"minilm, short mix, fp32": CASE})
    rows = speed_table.table("encode_speed_x").splitlines()
    assert rows[0].startswith(
        "A processor, one thread, processor seconds, 3 rounds, 2026-11-25; torch 2.13.0, OpenVINO"
    )
    heads, _, cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:])
    assert dict(zip(heads, cells, strict=True)) == {
        "case": "MiniLM, short mix, fp32",
        "ours, tokens per second": "500",
        "ours, plain": "0.75",
        "ONNX Runtime": "0.90",
        "OpenVINO": "1.00",
        "against the best peer": "0.90 (0.80 to 1.25)",
    }


def test_a_table_of_default_settings_has_no_others(results: Path) -> None:
    write(results, "encode_speed_defaults_x", cases={"base, long mix, fp32": CASE})
    (row,) = speed_table.table("encode_speed_defaults_x").splitlines()[4:]
    assert row == "| BERT-base, long mix, fp32 | 500 | 1.00 | 1.00 (0.80 to 1.25) |"


def test_cases_are_ordered_by_model_texts_and_precision(results: Path) -> None:
    names = [
        f"{model}, {mix}, {name}"
        for mix in ("short mix", "long mix")
        for model in ("base", "minilm")
        for name in ("int8", "fp32")
    ]
    cases = {}
    for name in names:
        precision = name.rsplit(" ", maxsplit=1)[1]
        cases[name] = json.loads(json.dumps(CASE).replace("fp32", precision))
    write(results, "encode_speed_x", cases=cases)
    rows = speed_table.table("encode_speed_x").splitlines()[4:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [
        f"{model}, {mix}, {name}"
        for model in ("MiniLM", "BERT-base")
        for mix in ("short mix", "long mix")
        for name in ("fp32", "int8")
    ]


def test_latency_is_in_milliseconds_of_a_row_and_processor_seconds_of_a_process(results: Path) -> None:
    spread = {"median": 2.0, "lowest": 1.9, "highest": 2.2}
    start = {
        "seconds": {"ours fp32": {**spread, "median": 3.0}, "openvino fp32": {**spread, "median": 1.5}},
        "seconds_worked": {"ours fp32": spread, "openvino fp32": {**spread, "median": 0.5}},
        "times_as_soon": {"openvino fp32": {**RATIO, "median": 0.25}},
    }
    write(results, "latency_x", rounds=3, one_row={"minilm, fp32": CASE}, cold_start={"minilm, fp32": start})
    row, first = speed_table.table("latency_x").splitlines()[4:]
    assert row == "| MiniLM, 1 row of 32, fp32 | 500.0 ms | 375.0 ms | 475.0 ms | 500.0 ms | 0.90 (0.80 to 1.25) |"
    assert first == "| MiniLM, first vector, fp32 | 2.00 s | - | - | 0.50 s | 0.25 (0.80 to 1.25) |"


def test_an_onnx_folder_is_compared_with_the_best_peer_too(results: Path) -> None:
    ours = {"ours-onnx fp32 best": [1.0, 2.0, 1.9]}
    case = {
        **CASE,
        "seconds": {**CASE["seconds"], **ours},
        "times_as_fast": {**CASE["times_as_fast"], "ours-onnx fp32 best": RATIO},
    }
    write(results, "encode_speed_x", cases={"minilm, short mix, fp32": case, "base, short mix, fp32": CASE})
    rows = speed_table.table("encode_speed_x").splitlines()[2:]
    assert [row.split(" | ")[-1].rstrip(" |") for row in rows] == [
        "ONNX folder against the best peer",
        "---",
        "1.00 (0.95 to 1.90)",
        "-",
    ]
    spread = {"median": 2.0, "lowest": 1.9, "highest": 2.2}
    worked = {
        "ours fp32": spread,
        "ours-onnx fp32": {**spread, "median": 0.4},
        "openvino fp32": {**spread, "median": 0.5},
    }
    start = {"seconds_worked": worked, "times_as_soon": {"openvino fp32": RATIO, "ours-onnx fp32": RATIO}}
    write(results, "latency_x", rounds=3, one_row={"minilm, fp32": case}, cold_start={"minilm, fp32": start})
    row, first = speed_table.table("latency_x").splitlines()[4:]
    assert row.endswith("| 475.0 ms | 475.0 ms | 500.0 ms | 0.90 (0.80 to 1.25) | 1.00 (0.95 to 1.90) |")
    assert first.endswith("| 0.90 (0.80 to 1.25) | 1.25 |")


def test_a_result_without_a_table_and_a_table_without_a_result_are_refused(results: Path) -> None:
    write(results, "encode_speed_x", cases={"minilm, short mix, fp32": CASE})
    with pytest.raises(SystemExit, match="difference: encode_speed_x;"):
        speed_table.page("# Page\n")
    block = "<!-- table of {} -->\nold\n<!-- end of table -->\n"
    with pytest.raises(SystemExit, match="difference: latency_x;"):
        speed_table.page(block.format("encode_speed_x") + block.format("latency_x"))
    with pytest.raises(SystemExit, match="the same table twice"):
        speed_table.page(block.format("encode_speed_x") * 2)
    made = speed_table.page("before\n" + block.format("encode_speed_x") + "after\n")
    assert made.startswith("before\n<!-- table of encode_speed_x -->\nA processor")
    assert made.endswith("<!-- end of table -->\nafter\n")
    assert "old" not in made
    assert speed_table.page(made) == made
