"""Numba's files go through the cache: kept between processes, checked, and no need to run."""

import os
import random
import resource

import pytest

from maxdnn.runtime import cache
from maxdnn.simulator import compiled


def double(x):
    return 2 * x


def square(x):
    return x * x


@pytest.fixture()
def place(tmp_path, monkeypatch):
    """An empty cache, and small functions in the place of the engine: what is compiled does not matter here."""
    monkeypatch.setattr(compiled, "_ENTRIES", ((double, "int64(int64)"), (square, "int64(int64)")))
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def hits(functions):
    """How many came from disk."""
    assert [function(7) for function in functions] == [14, 49]
    return sum(sum(function.stats.cache_hits.values()) for function in functions)


def test_a_second_process_finds_what_the_first_compiled(place):
    assert hits(compiled._entries()) == 0
    (path,) = place.iterdir()
    before = path.read_bytes()
    assert hits(compiled._entries()) == 2
    assert path.read_bytes() == before


def test_damaged_files_are_compiled_anew(place):
    compiled._entries()
    (path,) = place.iterdir()
    whole, rng = path.read_bytes(), random.Random(2)
    for number in range(40):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data if number else whole[:len(whole) // 3])
        assert cache.load(compiled._key(), ".numba") is None
    path.write_bytes(whole[:-1])
    assert hits(compiled._entries()) == 0
    assert hits(compiled._entries()) == 2


@pytest.mark.parametrize("folder", ["/dev/null/cache", "/proc/self/nothing"])
def test_without_a_folder_it_runs(place, monkeypatch, folder):
    monkeypatch.setenv("MAXDNN_CACHE", folder)
    assert hits(compiled._entries()) == 0


def test_on_a_full_disk_it_runs(place):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        made = compiled._entries()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert hits(made) == 0
    assert not place.exists() or os.listdir(place) == []


def test_no_folder_for_temporary_files_is_no_trouble(place, monkeypatch):
    monkeypatch.setattr(compiled.tempfile, "TemporaryDirectory", lambda **_: (_ for _ in ()).throw(OSError(28, "full")))
    assert hits(compiled._entries()) == 0
