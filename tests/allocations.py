"""What PyTorch allocates."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_of_allocations(call: Callable[[], object]) -> int:
    """The bytes that a call allocates on the CPU, at the peak, as PyTorch's profiler reports.

    It is called once before, for what is only allocated the first time.
    """
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        call()
    now = peak = 0
    events = [event for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: int(event.start_ns())):  # several threads allocate
        now += event.nbytes()
        peak = max(peak, now)
    return peak
