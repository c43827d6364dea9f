"""Runs the launches of a plan by what the families promise for their kernels, in NumPy. It shows that a plan is right,
whatever the kernels are; running the kernels against it shows that they keep the promise."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..algorithms import registry
from ..planning.plan import Plan

POISON = np.float32(np.nan)


def run_plan(plan: Plan, given: Mapping[str, np.ndarray], **scalars: Any) -> dict[str, np.ndarray]:
    """The operands of a plan after a call. `given`: by role; missing ones are filled with poison. Regions of the
    workspace share memory as the plan says, and are filled with poison where they begin to be used."""
    workspace = np.full(plan.workspace_bytes // 4, POISON)
    memory = {name: workspace[r.offset // 4:][:r.nbytes // 4] for name, r in plan.workspace.items()}
    shapes = plan.array_shapes()
    for role, shape in shapes.items():
        memory[role] = given[role].ravel().copy() if role in given else np.full(int(np.prod(shape)), POISON)
    references = {spec.name: family.reference for family in registry.FAMILIES for spec in family.kernels}
    for number, launch in enumerate(plan.launches):
        for name, region in plan.workspace.items():
            if region.first == number:
                memory[name][:] = POISON
        references[launch.spec.name](launch, memory, scalars)
    return {role: memory[role].reshape(shape) for role, shape in shapes.items()}
