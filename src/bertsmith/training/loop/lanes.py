"""Micro-batches side by side: each in a thread of its own, with the gradients added in a fixed order.

Threads that share every matrix product wait for each other at the end of each one. If another program holds one of
the cores, all of them wait, thousands of times per step. Threads that compute different micro-batches wait once per
step. The gradients are added in the order of the micro-batches, so the result does not depend on which thread is done
first: it is, bit for bit, that of one thread computing them one after another (docs/decisions/0018).
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

Loss = tuple[Tensor, Mapping[str, Tensor]]

MOST_LANES = 4
LEAST_TOKENS = 128  # of a lane in a step: with fewer, Python's own work between the products dominates
MOST_PARAMETERS = 200_000_000  # each lane holds gradients of its own, four bytes per parameter


def count_lanes(model: nn.Module) -> int:
    """The number of micro-batches of this model that are computed side by side; 1 for one thread, and on a GPU."""
    parameters = list(model.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return 1
    if sum(parameter.numel() for parameter in parameters) > MOST_PARAMETERS:
        return 1
    return min(torch.get_num_threads(), MOST_LANES)


def lanes_for(tokens: int, lanes: int) -> int:
    """The lanes that this number of tokens in a step is worth, at most `lanes` and at least 1.

    >>> lanes_for(4096, 2), lanes_for(300, 4), lanes_for(20, 4)
    (2, 2, 1)
    """
    return max(1, min(lanes, tokens // LEAST_TOKENS))


class Lanes:
    """Threads that each compute one micro-batch at a time, and share the threads of torch among themselves."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, "bertsmith-lane")
        threads, started = torch.get_num_threads(), threading.Barrier(count + 1)

        def start() -> None:
            torch.get_num_threads()  # the first use in a thread sets it to the number of the process
            torch.set_num_threads(max(1, threads // count))  # of this thread alone
            started.wait()

        for _ in range(count):
            self._pool.submit(start)
        started.wait()
        # The last call also decides for threads that start later, so it must be this one.
        torch.set_num_threads(threads)

    def losses(
        self, loss: Callable[[Any], Loss], micro_batches: Sequence[Any], parameters: Sequence[nn.Parameter]
    ) -> Generator[Loss]:
        """The losses and sums of the micro-batches, in order; adds their gradients to those of `parameters`.

        Args:
            loss: returns the loss of a micro-batch, with its graph, and sums for the log.
            micro_batches: at most `count` of them are in progress at a time.
        """
        upcoming = iter(micro_batches)
        running: deque[Future[tuple[Loss, Sequence[Tensor | None]]]] = deque()

        def begin_another() -> None:
            for micro_batch in upcoming:
                running.append(self._pool.submit(_gradients, loss, micro_batch, parameters))
                return

        for _ in range(self.count):
            begin_another()
        try:
            while running:
                result, gradients = running.popleft().result()
                begin_another()
                _add(parameters, gradients)
                yield result
        finally:
            for future in running:
                future.cancel()


def _gradients(
    loss: Callable[[Any], Loss], micro_batch: Any, parameters: Sequence[nn.Parameter]
) -> tuple[Loss, Sequence[Tensor | None]]:
    """The loss and sums of a micro-batch without their graph, and the gradient of each parameter, if it has one."""
    value, sums = loss(micro_batch)
    gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    return (value.detach(), sums), gradients


@torch.no_grad()
def _add(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Adds gradients to those that the parameters have."""
    sums, terms = [], []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            sums.append(parameter.grad)
            terms.append(gradient)
    if sums:
        torch._foreach_add_(sums, terms)
