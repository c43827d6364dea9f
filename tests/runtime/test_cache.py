"""The cache on disk gives what was stored or nothing, whatever happened to its files, and never stops anybody."""

import contextlib
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from maxdnn.emulator import native
from maxdnn.errors import MaxdnnError
from maxdnn.runtime import cache

PROGRAM = textwrap.dedent("""
    import numpy as np
    from maxdnn.emulator import VirtualGpu
    gpu = VirtualGpu(workers=1)
    x = gpu.alloc(4 * 37)
    gpu.load(open({cubin!r}, "rb").read()).function("square").launch((1, 1, 1), (37, 1, 1), [x])
    out = np.empty(37, np.int32)
    gpu.download(x, out)
    assert (out == np.arange(37) ** 2 + 5).all(), out
""")
SOURCE = 'extern "C" __global__ void square(int* x) { x[threadIdx.x] = threadIdx.x * threadIdx.x + 5; }'


@pytest.fixture()
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MAXDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MAXDNN_CACHE_BYTES", raising=False)
    return tmp_path / "cache"


def entries(place):
    return sorted(path for path in place.iterdir() if not path.name.startswith("."))


def test_what_is_stored_is_found_under_its_key_alone(place):
    assert cache.load(b"k", ".o") is None
    assert cache.store(b"k", ".o", b"content")
    assert cache.load(b"k", ".o") == b"content"
    assert cache.load(b"other", ".o") is None
    made = []
    assert cache.cached(b"k", ".o", lambda: made.append(1) or b"new") == b"content" and not made
    if os.name == "posix":
        assert place.stat().st_mode & 0o777 == 0o700


def test_an_entry_under_the_name_of_another_is_none(place):
    cache.store(b"one", ".o", b"first")
    cache.store(b"two", ".o", b"second")
    one, two = place / cache._name(b"one", ".o"), place / cache._name(b"two", ".o")
    one.write_bytes(two.read_bytes())
    assert cache.load(b"one", ".o") is None and cache.load(b"two", ".o") == b"second"


def damages(content, rng):
    """Forty flipped bits, cuts, additions."""
    for _ in range(40):
        data = bytearray(content)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        yield bytes(data)
    for cut in (0, 1, 10, 47, 48, len(content) // 2, len(content) - 1):
        yield content[:cut]
    yield content + b"\0"


def test_every_damage_is_noticed_and_healed(place):
    rng = random.Random(5)
    content = rng.randbytes(3000)
    cache.store(b"key", ".o", content)
    (path,) = entries(place)
    whole = path.read_bytes()
    for data in damages(whole, rng):
        path.write_bytes(data)
        assert cache.load(b"key", ".o") is None
        assert not path.exists()
        assert cache.cached(b"key", ".o", lambda: content) == content
        assert path.read_bytes() == whole


def test_a_folder_in_the_place_of_an_entry_is_replaced(place):
    cache.store(b"key", ".o", b"content")
    (path,) = entries(place)
    path.unlink()
    (path / "inside").mkdir(parents=True)
    assert cache.store(b"key", ".o", b"content") and cache.load(b"key", ".o") == b"content"
    path.unlink()
    path.mkdir()
    assert cache.load(b"key", ".o") is None and not path.exists()


@contextlib.contextmanager
def waiting_no_longer_than(seconds):
    """An error, not a test that never ends, from what waits in the system for a file."""
    def over(*_):
        raise AssertionError("waits for the file")  # no OSError, which would be taken for a damaged file
    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fifo(path):
    os.mkfifo(path)


def socket_file(path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(os.path.relpath(path))  # the whole name may be too long for one


def loop(path):
    path.symlink_to(path.name)


def device(path):
    path.symlink_to("/dev/zero")


def linked(path):
    (path.parent / "outside").write_bytes(b"content")
    path.symlink_to("outside")


def folder_of_folders(path):
    (path / "inside").mkdir(parents=True)


def unreadable(path):
    path.write_bytes(b"content")
    path.chmod(0)


def endless(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)  # of holes: takes no room, and no memory has as much


ODD = [fifo, socket_file, loop, device, linked, folder_of_folders, unreadable, endless]


@pytest.mark.skipif(os.name != "posix", reason="files of another kind")
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_file_of_ours_is_damaged_and_never_waited_for(place, odd, monkeypatch):
    """In a process of its own that a signal ends, should it wait."""
    cache.store(b"key", ".o", b"content")
    (path,) = entries(place)
    path.unlink()
    monkeypatch.chdir(place)
    odd(path)
    program = ("import signal; signal.alarm(60)\nfrom maxdnn.runtime import cache\n"
               "print(list(cache.contents('.o')), cache.load(b'key', '.o'),"
               "      cache.cached(b'key', '.o', lambda: b'new'), cache.load(b'key', '.o'))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, *after = done.stdout.rsplit(maxsplit=3)
    assert after == ["None", "b'new'", "b'new'"]
    assert before == ("[b'']" if odd is unreadable and os.access(path, os.R_OK) else "[]")  # root reads everything
    assert path.is_file() and not path.is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="files of another kind")
@pytest.mark.parametrize("odd", ODD)
def test_odd_entries_give_way_to_new_ones(place, odd, monkeypatch):
    cache.store(b"key", ".o", b"content")
    (path,) = entries(place)
    path.unlink()
    monkeypatch.chdir(place)
    odd(path)
    assert cache.store(b"key", ".o", b"new") and cache.load(b"key", ".o") == b"new"


@pytest.mark.skipif(os.name != "posix", reason="files of another kind")
def test_a_kernel_is_made_again_where_its_file_is_a_pipe(tmp_path, monkeypatch):
    """Kept cubins are the package's other cache."""
    from maxdnn.build import cubins
    (tmp_path / "maxwell").mkdir()
    for suffix in (".json", ".cubin"):
        os.mkfifo(tmp_path / "maxwell" / f"fill{suffix}")
    monkeypatch.setattr(cubins, "BINARIES", tmp_path)
    monkeypatch.setattr(cubins, "_build", lambda source, archs, path: b"made")
    with waiting_no_longer_than(60):
        assert cubins._code.__wrapped__("maxwell/fill") == b"made"


@pytest.mark.skipif(os.name != "posix", reason="permissions of another kind")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(place, mode):
    cache.store(b"key", ".o", b"content")
    place.chmod(mode)
    assert cache.folder() is None and cache.load(b"key", ".o") is None and not cache.store(b"key", ".o", b"new")
    place.chmod(0o755)
    assert cache.load(b"key", ".o") == b"content"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners")
def test_a_folder_of_somebody_else_is_not_used(place, monkeypatch):
    cache.store(b"key", ".o", b"content")
    monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    assert cache.folder() is None and cache.load(b"key", ".o") is None


@pytest.mark.parametrize("named", ["/dev/null/cache", "{file}", "/proc/self/nothing"])
def test_a_folder_that_cannot_be_made_is_no_cache(tmp_path, monkeypatch, named):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MAXDNN_CACHE", named.format(file=tmp_path / "file"))
    assert not cache.store(b"key", ".o", b"content")
    assert cache.cached(b"key", ".o", lambda: b"made") == b"made"


def test_no_home_is_no_cache(monkeypatch, tmp_path):
    for name in ("MAXDNN_CACHE", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user without an entry in the password file
    monkeypatch.chdir(tmp_path)
    assert cache.cached(b"key", ".o", lambda: b"made") == b"made"
    assert list(tmp_path.iterdir()) == []


def test_the_bound_holds_and_what_was_used_last_stays(place, monkeypatch):
    monkeypatch.setenv("MAXDNN_CACHE_BYTES", "5000")
    for number in range(4):
        assert cache.store(bytes([number]), ".o", bytes(1000))
        os.utime(place / cache._name(bytes([number]), ".o"), (number, number))
    assert cache.load(b"\0", ".o") is not None  # now the one used last
    bystander = place / "somebody's.txt"
    bystander.write_bytes(bytes(4000))
    cache.store(b"new", ".o", bytes(1800))
    assert [cache.load(key, ".o") is not None for key in (b"\0", b"\1", b"\2", b"\3", b"new")] == [
        True, False, True, True, True]
    assert bystander.exists()
    assert not cache.store(b"large", ".o", bytes(5000))
    monkeypatch.setenv("MAXDNN_CACHE_BYTES", "0")
    assert cache.load(b"new", ".o") is None and not cache.store(b"k", ".o", b"")


def test_a_bound_that_is_no_number_is_an_error(place, monkeypatch):
    for text in ("many", "-1", "1e6", "٣"):
        monkeypatch.setenv("MAXDNN_CACHE_BYTES", text)
        with pytest.raises(MaxdnnError, match="MAXDNN_CACHE_BYTES must be a whole number"):
            cache.load(b"key", ".o")


def test_files_that_dead_processes_left_half_written_go(place):
    cache.store(b"key", ".o", b"content")
    old, young = place / (cache._NEW + "old"), place / (cache._NEW + "young")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 1e5,) * 2)
    cache.store(b"other", ".o", b"content")
    assert not old.exists() and young.exists()


def full_disk(monkeypatch, place):
    def fail(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", fail)


def short_files(monkeypatch, place):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("trouble", [full_disk, short_files])
def test_on_a_full_disk_nothing_is_kept_and_nothing_is_left(place, monkeypatch, trouble):
    cache.store(b"before", ".o", b"content")
    undo = trouble(monkeypatch, place)
    try:
        assert cache.cached(b"key", ".o", lambda: bytes(5000)) == bytes(5000)
    finally:
        if undo:
            undo()
    assert os.listdir(place) == [cache._name(b"before", ".o")]


@pytest.fixture(scope="module")
def cubin(tmp_path_factory):
    from tests import oracles
    path = tmp_path_factory.mktemp("cubin") / "square.cubin"
    path.write_bytes(oracles.compile_cuda(SOURCE))
    return path


def processes(cubin, place, count=1):
    """Run the program in `count` processes at once, each with an empty memory."""
    env = {**os.environ, "MAXDNN_CACHE": str(place)}
    command = [sys.executable, "-c", PROGRAM.format(cubin=str(cubin))]
    running = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    for one in running:
        _, words = one.communicate(timeout=300)
        assert one.returncode == 0, words


@pytest.mark.long
def test_cold_processes_share_the_emulators_cache_and_heal_it(cubin, tmp_path):
    place = tmp_path / "cache"
    processes(cubin, place, 3)
    found = {path: path.read_bytes() for path in entries(place)}
    assert len(found) == len(os.listdir(place)) == 2  # what kernels call, and the one variant of this one
    (first, whole), (second, data) = found.items()
    first.write_bytes(whole[:len(whole) // 2])
    flipped = bytearray(data)
    flipped[random.Random(1).randrange(len(data))] ^= 1
    second.write_bytes(bytes(flipped))
    processes(cubin, place, 1)
    assert {path: path.read_bytes() for path in entries(place)} == found
    second.unlink()
    second.mkdir()
    processes(cubin, place, 1)
    assert {path: path.read_bytes() for path in entries(place)} == found


def test_all_that_makes_code_and_translations_is_in_their_key():
    program = ("import sys, maxdnn.ptx.translate, maxdnn.emulator.compiled\n"
               "for name, module in sys.modules.items():\n"
               "    if name.startswith('maxdnn.'): print(module.__file__)")
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    beside = {"cache.py", "errors.py", "files.py", "forks.py", "trace.py", "__init__.py", "protocol.py", "remember.py"}
    sources = {str(path) for path in native._sources()}
    assert {path for path in loaded if pathlib.Path(path).name not in beside} <= sources and len(sources) > 50


@pytest.mark.long
def test_the_emulator_runs_where_nothing_can_be_written(cubin, tmp_path):
    processes(cubin, pathlib.Path("/dev/null/cache"))
