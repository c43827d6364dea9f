"""What only a GPU of compute capability 9.0 can answer about its machine code. `pytest -m gpu tests/gpu`."""

import pytest

from maxdnn.emulator import VirtualGpu
from tests.gpu import edges

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("hopper")]


@pytest.mark.parametrize("text", [text for text in edges.programs() if text not in edges.KEPT])
def test_instructions_give_the_bits_of_the_virtual_gpu_at_the_edges_of_their_types(device, text: str) -> None:
    number = list(edges.programs()).index(text)
    assert (edges.results(device, number) == edges.results(VirtualGpu(), number)).all()


@pytest.mark.parametrize("text", edges.KEPT)
def test_where_the_checker_has_nothing_to_say_the_reuse_cache_serves_nothing_old(device, text: str) -> None:
    stale, number = edges.KEPT[text][0], list(edges.programs()).index(text)
    same = (edges.results(device, number) == edges.results(VirtualGpu(), number)).all()
    assert same or stale
