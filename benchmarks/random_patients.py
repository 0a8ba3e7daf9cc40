"""Patients whose rule is known: latent diseases, each with diagnoses below a node of a tree, and their medications.

A disease has a category of the tree of diagnoses and two of the tree of medications. At each visit a patient has most
of the chronic diseases and perhaps an acute one; a disease shows as one to three codes below its category, a few of
which are frequent and most rare, and is treated with a code below each of its categories of medications, for a chronic
disease mostly with the same one at each visit. A tenth of all codes are noise.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertsmith.base.core.randomness import generator

DISEASES = 24
DIAGNOSES, MEDICATIONS = (6, 5, 12), (4, 3, 4)  # children of the top, of each chapter, of each category
NOISE = 0.1
SEVERAL = 0.25  # patients with more than one visit; in MIMIC-III it is a sixth


def leaves(shape: Sequence[int], prefix: str) -> list[list[str]]:
    """The codes below each category of a tree of this shape."""
    chapters, categories, codes = shape
    return [
        [f"{prefix}{chapter}.{category}.{code}" for code in range(codes)]
        for chapter in range(chapters)
        for category in range(categories)
    ]


def write_tree(path: Path) -> None:
    """The two trees as one table."""
    lines = ["code\tparent\tkind"]
    for kind, prefix, shape in (("diagnosis", "D", DIAGNOSES), ("medication", "M", MEDICATIONS)):
        nodes = dict.fromkeys(code for codes in leaves(shape, prefix) for code in codes)
        for code in list(nodes):
            category = code.rpartition(".")[0]
            nodes |= dict.fromkeys((category, category.rpartition(".")[0]))
        lines += [f"{node}\t{node.rpartition('.')[0]}\t{kind}" for node in nodes]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def chronic_diseases(patient: int, seed: int) -> tuple[list[int], np.random.Generator]:
    """The one to three chronic diseases of a patient, and the source of everything else about it."""
    source = generator(seed, "patient", patient)
    diseases: list[int] = source.permutation(DISEASES)[: 1 + source.integers(3)].tolist()
    return diseases, source


def write_patients(path: Path, patients: int, seed: int) -> None:
    """A table of events."""
    rules = generator(seed, "diseases")
    diagnoses, medications = leaves(DIAGNOSES, "D"), leaves(MEDICATIONS, "M")
    categories = rules.permutation(len(diagnoses))[:DISEASES]
    treatments = [rules.permutation(len(medications))[:2] for _ in range(DISEASES)]
    weights = 1 / (1 + np.arange(DIAGNOSES[2])) ** 1.5  # of the codes of a category
    weights /= weights.sum()
    every = [[code for codes in tree for code in codes] for tree in (diagnoses, medications)]
    lines = ["subject\ttime\tcode\tkind"]
    for patient in range(patients):
        chronic, source = chronic_diseases(patient, seed)
        usual = {disease: [source.integers(MEDICATIONS[2]) for _ in range(2)] for disease in chronic}
        visits = 2 + int(source.integers(4)) if source.random() < SEVERAL else 1
        for visit in range(visits):
            present = [disease for disease in chronic if source.random() < 0.8]
            if source.random() < 0.4 or not present:
                present.append(int(source.integers(DISEASES)))
            shown, treated = set[str](), set[str]()
            for disease in present:
                codes = diagnoses[categories[disease]]
                shown.update(codes[number] for number in source.choice(len(codes), 1 + source.integers(3), p=weights))
                for number, treatment in enumerate(treatments[disease]):
                    keeps = disease in usual and source.random() < 0.8
                    choice = usual[disease][number] if keeps else source.integers(MEDICATIONS[2])
                    treated.add(medications[treatment][choice])
            for codes, others in ((shown, every[0]), (treated, every[1])):
                codes.update(others[source.integers(len(others))] for _ in list(codes) if source.random() < NOISE)
            for kind, codes in (("diagnosis", shown), ("medication", treated)):
                lines += [f"p{patient}\t{visit}\t{code}\t{kind}" for code in sorted(codes)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
