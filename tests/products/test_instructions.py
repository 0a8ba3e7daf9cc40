"""Answers hardly depend on the instructions of the processor: with AVX2 alone, fp32 and int8 agree within limits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertsmith.base.machine import runtime
from products import of_instructions

PROGRAM = Path(of_instructions.__file__)
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}


@pytest.mark.skipif(not runtime.can_pack("cpu", "fp32"), reason="needs the packed products of oneDNN")
def test_vectors_agree_with_those_of_the_instructions_of_avx2_alone() -> None:
    here = of_instructions.states()
    paths = os.pathsep.join([str(PROGRAM.parents[1]), *filter(None, sys.path)])
    command = [sys.executable, "-W", "ignore", str(PROGRAM)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **AVX2, "PYTHONPATH": paths}
    )
    assert result.returncode == 0, result.stderr[-2000:]
    there = json.loads(result.stdout)
    for numbers in zip(here["plain"], here["fp32"], there["fp32"], here["int8"], there["int8"], strict=True):
        plain, packed, other, integers, other_integers = map(torch.tensor, numbers)
        torch.testing.assert_close(packed, plain, rtol=0, atol=runtime.BATCH_TOLERANCE)
        torch.testing.assert_close(other, plain, rtol=0, atol=runtime.BATCH_TOLERANCE)
        assert float(torch.cosine_similarity(integers, plain).min()) > 0.998
        assert float(torch.cosine_similarity(other_integers, plain).min()) > 0.998
