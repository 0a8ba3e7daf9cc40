"""The command that says what a pre-training will take before it runs."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import AddressedCorpus, given, note, print_json, say
from bertsmith.app.cli.pretraining import pretrain_settings


def plan_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `plan`."""
    from bertsmith.training.planning.settings import PlanSettings

    return (PlanSettings, *pretrain_settings())


def plan(
    corpus: AddressedCorpus,
    json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text; --rates reads it")] = False,
    **values: Any,
) -> None:
    """Say what a pre-training will take: memory, steps, hours, price, and what drives them.

    Nothing is written but the index of a corpus at an address, which the run needs too.

    It takes the options of `pretrain`; without a budget, the plan is for --passes over the corpus. The rates are those
    of a few real steps on this machine. For a GPU that is not here, --device names it (a10, a100, a100-40, h100,
    h100-pcie, h200, l4, l40s, t4 or v100) and the rate is an estimate from its published peak, or --rates names a plan
    that was written there with --json.
    """
    from bertsmith.training.planning.run import plan_pretraining

    found = plan_pretraining(corpus, **given(values))
    for line in found.notes:
        note(line)
    if json:
        print_json(found.to_dict())
        return
    for line in found.lines():
        say(line)
