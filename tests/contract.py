"""Plans by what the families promise for their kernels."""

from maxdnn.selftest.contract import run_plan

__all__ = ["run_plan"]
