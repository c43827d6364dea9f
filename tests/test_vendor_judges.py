"""benchmarks/vendor_judges.py: programs compute what NumPy does, launches are predicted, the table adds up."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SOURCES = ("algebra", "grids", "numbers", "products", "reductions", "streams")
UNKNOWN = {"product_mma"}  # mma.sync, whose machine code the table of instructions does not have


@pytest.fixture(scope="module")
def bench() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        spec = importlib.util.spec_from_file_location("vendor_judges", BENCHMARKS / "vendor_judges.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "vendor_judges", module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def cubins(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judges")
    bench.build(folder)
    return folder


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", SOURCES)
def test_programs_compute_what_numpy_computes(bench: Any, cubins: Path, source: str) -> None:
    kernels = [p.kernel for p in bench.all_programs().values() if p.source == source and p.kernel not in UNKNOWN]
    assert kernels and bench.check(cubins, False, kernels) == 0


def test_every_source_is_launched_often_enough(bench: Any) -> None:
    assert (
        {p.source for p in bench.all_programs().values()}
        == set(SOURCES)
        == {path.stem for path in (BENCHMARKS / "judges").glob("*.cu")}
    )
    assert len(bench.launches()) >= 80


def test_a_launch_is_predicted_and_its_error_is_in_the_table(bench: Any, cubins: Path, tmp_path: Path) -> None:
    seen = {"clocks": 20000, "active": 19000, "issued": 10**6, "l1_hit": 0.0, "l2_hit": 30.0}
    row = {"program": "saxpy", "group": "streams", "size": [1 << 16], "measured": seen}
    out = tmp_path / "rows.json"
    out.write_text(json.dumps({"rows": [row]}))
    bench.predict(cubins, out, (), False, "all", "h200")
    clocks = json.loads(out.read_text())["rows"][0]["model"]["clocks"]
    assert f"{100 * (clocks / 20000 - 1):+.1f} %" in bench.table(out)
