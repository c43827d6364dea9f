"""Every row of the table of sm_80 to sm_90 either has a meaning on the virtual GPU or is refused there by name: nothing
fails inside while a kernel is taken apart."""

import random

import pytest

from maxdnn.emulator.converge import ConvergenceLowering
from maxdnn.emulator.program import Program
from maxdnn.isa import Control, decode, encode, table_of
from maxdnn.isa.addressing import Addressing
from maxdnn.semantics import meaning
from tests.isa import sampling

SEED = 24
SAMPLES = 3
EXIT = 0x94D | 7 << 12 | 7 << 87


class _Kernel:
    """As much of a kernel as a program asks for."""

    def __init__(self, arch: str, words: list[int]) -> None:
        self.arch, self.table = arch, table_of(arch)
        self.addressing: Addressing = self.table.addressing
        self.attributes: tuple[tuple[int, bytes], ...] = ()
        self._words = words

    def words(self) -> list[tuple[int, int, Control]]:
        return [(self.addressing.address_of(i), word, Control()) for i, word in enumerate(self._words)]


def _lowered(arch: str, word: int) -> None:
    """One word between ends of a thread, so that a branch has somewhere to go."""
    kernel = _Kernel(arch, [word, EXIT])
    ConvergenceLowering(Program(kernel), True, [4096] * 18)  # type: ignore[arg-type]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_every_row_has_a_meaning_or_a_refusal(arch: str) -> None:
    rng, table = random.Random(SEED), table_of(arch)
    print(f"seed {SEED}")
    failed = []
    for row in table.rows:
        for _ in range(SAMPLES if arch == "sm_90" else 1):
            word = sampling.random_word(rng, row)
            try:
                _lowered(arch, word)
            except Exception as e:  # whatever Python says, it is no refusal
                failed.append(f"{decode(word, Control(), 0, table).text()} ({row.spec['name']}): {e!r}")
    assert not failed, f"{len(failed)}: {failed[:40]}"


LISTED = ["i2fp__RuIR", "i2f__IU_32b", "i2f__UR_64b", "f2f_f64_upconvert__R_UR32_R_RUR",
          "f2f_f64_upconvert__R_C32_R_RCR", "ulea_hi_noimm__URURUR_URURUR", "ulea_lo_noimm_x__URURUR_URURUR",
          "ulea_hi_noimm_sx32_x__URURUR_URURUR", "uisetp_optional_upr__URURUR_URURUR", "lea_hi_noimm__RUR_RUR",
          "lea_hi_noimm_sx32__RUR_RUR", "match__ANY", "tld_urc_", "tld_scr_", "lepc__RRR", "lepc__R_I_R"]


@pytest.mark.parametrize("name", LISTED)
def test_forms_that_compiled_code_was_seen_to_have_have_a_meaning(name: str) -> None:
    """No refusal; BRX, BPT, WARPSYNC and BAR are control flow, which test_hopper_forms.py runs."""
    table = table_of("sm_90")
    row = next(row for row in table.rows if row.spec["name"] == name)
    word = sampling.random_word(random.Random(SEED), row)
    inst = decode(word, Control(), 0, table)
    assert meaning(inst) is not None and encode(inst) == word
