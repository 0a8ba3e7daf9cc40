"""The cost of a training before it starts: memory, steps, hours, and what drives them.

`rates.py` measures or estimates how long the parts of a run take, `memory.py` counts what they hold, `plan.py` adds
them up, and `run.py` is `bertsmith plan` as a function. `gains.py` has what pre-training on text of a domain was worth.
"""
