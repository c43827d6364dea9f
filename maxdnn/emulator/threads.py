"""The threads of a launch: each runs a worker, which takes CTAs from the grid until none is left."""

import os
import threading

from ..errors import EmulationFault
from . import helpers, layout
from .faults import fault_of
from .memory import GlobalMemory
from .worker import LaunchPlan, Worker


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(plan: LaunchPlan, workers: int, memory: GlobalMemory) -> None:
    """Run all CTAs of a launch, on at most `workers` threads. Raises EmulationFault, the first one found."""
    helpers.load()  # before there are threads
    count = 1 if plan.host else max(1, min(workers, plan.record["total"]))
    faults: list[EmulationFault] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            worker = Worker(plan)
            if worker.run() == layout.FAULTED:
                plan.record["stop"] = 1
                faults.append(fault_of(worker, memory))
        except BaseException as e:
            plan.record["stop"] = 1
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():  # a signal that another thread received does not wake a plain join
                thread.join(0.2)
    except BaseException:  # an interrupt: no warp goes beyond its slice
        plan.record["stop"] = 1
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]
    if faults:
        raise faults[0]
