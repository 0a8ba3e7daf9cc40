"""Peak rates of GPUs, and the utilization in the log."""

import re

import pytest
import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.training.loop import state
from bertsmith.training.loop.devices import GPUS, named_gpu, peak_of, peak_of_device
from bertsmith.training.loop.run_folder import RunFolder
from training.toy import ToyWorkload, toy_run

NAMES = {
    "NVIDIA H200": "h200",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA A100 80GB PCIe": "a100",
    "NVIDIA A100-SXM4-40GB": "a100-40",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "NVIDIA A10": "a10",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-16GB": "v100",
}


@pytest.mark.parametrize(("name", "short"), NAMES.items())
def test_a_device_is_known_by_the_name_that_cuda_reports(name, short):
    assert [model for model, gpu in GPUS.items() if re.fullmatch(gpu.pattern, name)] == [short]
    assert peak_of(name, "fp32") == GPUS[short].single * 1e12


@pytest.mark.parametrize(
    "name", ["NVIDIA H200 NVL", "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 2070", "NVIDIA A100X"]
)
def test_a_device_that_only_looks_like_a_known_one_has_no_peak(name):
    assert peak_of(name, "bf16") is None


def test_a_precision_without_products_has_no_peak():
    assert peak_of("Tesla T4", "bf16") is None
    assert peak_of("Tesla T4", "fp16") == 65e12
    assert peak_of("NVIDIA H200", "fp64") is None
    assert peak_of_device(torch.device("cpu"), "fp32") is None
    with pytest.raises(ConfigError, match="found 'h20'"):
        named_gpu("h20")


class CountedWorkload(ToyWorkload):
    """Its steps need 300 GFLOP each."""

    def operations(self, plan):
        return 3e11


def test_the_log_has_the_utilization_of_a_device_with_a_known_peak(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "peak_of_device", lambda device, precision: 1e12)
    toy_run(tmp_path / "known", CountedWorkload(), steps=4, log_every=2)
    for line in RunFolder.open(tmp_path / "known").metrics("train"):
        # Both are rates of the same seconds.
        seconds = 2 * 3e11 / 1e12 / line["utilization"]
        tokens = 2 * line["tokens"] / line["step"]
        assert line["tokens_per_second"] == pytest.approx(tokens / seconds, rel=0.2)
    toy_run(tmp_path / "uncounted", ToyWorkload(), steps=2, log_every=1)
    assert all("utilization" not in line for line in RunFolder.open(tmp_path / "uncounted").metrics("train"))


def test_the_log_has_no_utilization_on_a_cpu(tmp_path):
    toy_run(tmp_path, CountedWorkload(), steps=2, log_every=1)
    assert all("utilization" not in line for line in RunFolder.open(tmp_path).metrics("train"))
