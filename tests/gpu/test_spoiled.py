"""Trust on first use, on a GPU whose machine code is known to be right: every spoiled kernel is found out."""

import pytest

from tests.gpu import spoiled

pytestmark = pytest.mark.gpu


def test_no_damage_reaches_a_result_and_every_one_is_remembered(hopper):
    assert spoiled.main([]) == 0
