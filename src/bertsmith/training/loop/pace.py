"""The pace of a run: how far each step takes it through its learning-rate schedule.

A run is planned with a number of steps. If its steps turn out to be slower or faster, a run with a budget in minutes
gets a new number of steps, and what is left of the schedule is spread over the steps that are left: the learning rate
has no jump, and still decays to its end.
"""

import bisect
import itertools
from dataclasses import dataclass

from bertsmith.base.core.settings import require


@dataclass(frozen=True)
class Pace:
    """The planned number of steps of a run, and the changes to it.

    Attributes:
        planned: the steps that the schedule was made for.
        changes: pairs (step, steps), by rising step: after `step` steps, `steps` became the length of the run.
    """

    planned: int
    changes: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def parse(planned: int, text: str) -> "Pace":
        """The pace with the changes in a text such as "1200:3000,1500:2400"."""
        pairs = [part.strip().split(":") for part in text.split(",")]
        valid = all(len(pair) == 2 and all(number.isascii() and number.isdigit() for number in pair) for pair in pairs)
        changes = tuple((int(pair[0]), int(pair[1])) for pair in pairs) if valid else ()
        begins = [0, *(step for step, _ in changes)]
        lengths = [planned, *(steps for _, steps in changes)]
        require(
            valid
            and all(earlier < later for earlier, later in itertools.pairwise(begins))
            and all(step < min(before, after) for (step, after), before in zip(changes, lengths, strict=False)),
            expected=f"changes of a run of {planned} steps as STEP:STEPS,... by rising step",
            found=repr(text),
            fix="copy them from the settings.json of the run to repeat",
        )
        return Pace(planned, changes)

    @property
    def text(self) -> str:
        """The changes as `parse` reads them.

        >>> Pace(5000, ((1200, 3000), (1500, 2400))).text
        '1200:3000,1500:2400'
        """
        return ",".join(f"{step}:{steps}" for step, steps in self.changes)

    @property
    def steps(self) -> int:
        """The number of steps of the run, as far as is known."""
        return self.changes[-1][1] if self.changes else self.planned

    def changed(self, step: int, steps: int) -> "Pace":
        """This pace, but with `steps` steps in all, decided after `step` steps."""
        return Pace(self.planned, (*self.changes, (step, steps)))

    def planned_position(self, step: int) -> float:
        """The step of the planned schedule, mostly between two, that this step of the run corresponds to.

        >>> [Pace(100, ((20, 60),)).planned_position(step) for step in (0, 20, 40, 60)]
        [0, 20, 60.0, 100.0]
        """
        begin, total, position = 0, self.planned, 0.0
        for changed, steps in self.changes:
            if step <= changed:
                break
            position += (changed - begin) * (self.planned - position) / (total - begin)
            begin, total = changed, steps
        return position + (step - begin) * (self.planned - position) / (total - begin) if begin else step

    def first_step(self, position: float) -> int:
        """The first step at or after a position in the planned schedule.

        >>> Pace(100, ((20, 60),)).first_step(90), Pace(100).first_step(90)
        (55, 90)
        """
        return bisect.bisect_left([self.planned_position(step) for step in range(self.steps + 1)], position)
