"""What tests/gpu/mutants.py runs on a GPU: every native kernel, mutants of all kinds, verdicts that can be bad."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from maxdnn.planning.plan import Plan
from maxdnn.runtime.devices import find
from tests.gpu import again, mutants


@pytest.mark.long
def test_every_native_kernel_is_reached_and_weakened_in_every_way() -> None:
    kernels = mutants.reached()
    assert set(kernels) == mutants._native() and all(kernels.values())
    some = mutants.mutants(list(kernels), 12 * len(kernels), seed=1)
    assert {(m.source, m.kernel) for m in some} == set(kernels) and {m.kind for m in some} == set(mutants.KINDS)
    assert len({(m.kernel, m.index, m.control) for m in some}) == len(some) == 12 * len(kernels)


@pytest.mark.long
def test_a_mutant_is_judged_by_the_bits_of_the_kernel_as_it_is() -> None:
    """The virtual GPU takes any control code; another instruction gives other bits."""
    key, (_, parts, small, *_) = next(iter(mutants.reached("sm90_product_128x128_nn").items()))
    assert "rows of tiles, which do not fill" in parts.explain()
    stand = mutants.Stand(find.host(), {key: [small]})
    [weaker] = mutants.mutants([key], 1, seed=1)
    assert stand.verdict(weaker, 1) == "right" and weaker.reported()

    class Other(mutants.Mutant):
        def image(self) -> bytes:
            """With the first scaling by alpha of the last step turned into one of the negated sum."""
            kernel, image = mutants._kernel(self.source, self.kernel), mutants.built(self.source, mutants.HOPPER)
            index = next(i for i, inst in enumerate(kernel.instructions)
                         if inst.opcode == "FFMA" and "UR" in inst.text())
            at = image.index(kernel.code) + 16 * index + 9
            return image[:at] + bytes([image[at] ^ 1]) + image[at + 1:]

    assert stand.verdict(Other(*key, 0, "wait", weaker.control), 1) == "wrong"


@pytest.mark.parametrize("seconds, verdicts", [(60, {0: "right", 1: "fault"}), (0.2, {0: "right"})])
def test_what_a_process_leaves_without_a_verdict_is_a_fault_only_if_it_ended_by_itself(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, verdicts: dict[int, str]) -> None:
    """Time runs out between the verdict of one mutant and that of the next, which has begun."""
    real, code = subprocess.Popen, "import time; time.sleep(0.5); print('try', 0); print('right', 0); print('try', 1)"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", code], **options))
    assert mutants.judge(str(tmp_path), 1, time.monotonic() + seconds, [0, 1]) == verdicts


def test_runs_are_compared_and_what_was_written_beside_is_told() -> None:
    plans = {key: found[2:3] for key, found in mutants.reached("sm90_product_128x128_nn").items()}

    class Wavering(mutants.Stand):
        results: list[dict[str, bytes]] = []

        def bits(self, plan: Plan) -> dict[str, bytes]:
            return self.results.pop()

    same, other = {"out": b"1"}, {"out": b"2"}
    stand = Wavering(find.host(), plans)
    for results, said in (([same] * 3, None), ([same, other, same], "not the same bits"),
                          ([same, {"guard": b"memory beside out"}, same], "memory beside out")):
        stand.results = results
        found = again.differing(stand, plans, 3)
        assert (found == []) if said is None else (len(found) == 1 and found[0].endswith(said))
