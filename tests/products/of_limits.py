"""A program: prints as JSON what oneDNN and MKL say that they use, for each of the environments on its stdin.

The libraries read their limits at their first product, so each environment gets a process that has made none.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import torch

OFF_OR_AUTO, COMPATIBLE = (1, 2), 3  # branches of MKL_CBWR


def said(limits: dict[str, str]) -> tuple[str, int | None]:
    """(the instructions that oneDNN reports, the branch of MKL or None) in a process with these variables."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.environ |= {**limits, "ONEDNN_VERBOSE": "1"}
        os.dup2(writing, 1)
        packed = torch.ops.mkldnn._reorder_linear_weight(torch.zeros(16, 16), 2)
        torch.ops.mkldnn._linear_pointwise.default(torch.zeros(2, 16), packed, None, "none", [], "")
        ctypes.CDLL(None).fflush(None)
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        branch = getattr(library, "mkl_serv_cbwr_get", None)
        os.write(writing, f"branch:{-1 if branch is None else branch(1)}\n".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        lines = file.read().splitlines()
    os.waitpid(process, 0)
    branch = int(lines[-1].removeprefix("branch:"))
    return next(line.split("isa:")[1] for line in lines if "isa:" in line), None if branch < 0 else branch


if __name__ == "__main__":
    json.dump([said(limits) for limits in json.load(sys.stdin)], sys.stdout)
