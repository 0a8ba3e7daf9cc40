"""Tiny tables of events, whose rule is known: a medication follows its diagnosis."""

from pathlib import Path

import numpy as np

DISEASES = {"flu": "rest", "cold": "tea", "gout": "diet", "burn": "salve"}
TREE = "code,parent,kind\nillness,,diagnosis\nflu,illness,diagnosis\ncold,illness,diagnosis\ngout,ROOT,diagnosis\n"


def write_events(path: Path, *, subjects: int = 40, seed: int = 1) -> Path:
    """A CSV of subjects with one to four visits; each visit has one to three diagnoses and their medications."""
    source = np.random.default_rng(seed)
    lines = ["subject,time,code,kind"]
    for subject in range(subjects):
        for visit in range(1 + subject % 4):
            for disease in source.permutation(list(DISEASES))[: 1 + source.integers(3)].tolist():
                day = f"2020-01-{1 + visit:02}"
                lines += [f"p{subject},{day},{disease},diagnosis", f"p{subject},{day},{DISEASES[disease]},medication"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_tree(path: Path) -> Path:
    """A tree over the diagnoses but one."""
    path.write_text(TREE, encoding="utf-8")
    return path
