"""The swap file: bytes come back as they went, and a disk that cannot hold them says so."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memplan.codegen.swap import disk
from memplan.codegen.swap.disk import DiskFile
from memplan.codegen.swap.speed import disk_speed, host_speed
from memplan.errors import SwapError
from memplan.planner.extents import ALIGNMENT_BYTES


def memory(nbytes: int, seed: int | None = None) -> ctypes.Array[ctypes.c_char]:
    """Return memory that holds zeros, or random bytes."""
    block = ctypes.create_string_buffer(nbytes)
    if seed is not None:
        block.raw = random.Random(seed).randbytes(nbytes)
    return block


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("nbytes", [1, 4095, 4096, 4097, 3 * 8192 + 5])
def test_bytes_come_back(
    nbytes: int, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not direct:
        monkeypatch.setattr(disk, "_DIRECT", 0)
    file = DiskFile(tmp_path, 8192)
    if direct and not file.direct:
        pytest.skip("the file system of the temporary folder has no direct input and output")
    assert file.direct == direct
    there, back = memory(nbytes, seed=nbytes), memory(nbytes)
    place = file.take(nbytes)
    file.write(place, ctypes.addressof(there), nbytes)
    file.read(place, ctypes.addressof(back), nbytes)
    assert back.raw == there.raw


def test_copies_do_not_touch_each_other(tmp_path: Path) -> None:
    file = DiskFile(tmp_path, 8192)
    sizes = [5000, 1, 20000, 4096]
    blocks = [memory(nbytes, seed) for seed, nbytes in enumerate(sizes)]
    places = [file.take(nbytes) for nbytes in sizes]
    for place, block, nbytes in zip(places, blocks, sizes, strict=True):
        file.write(place, ctypes.addressof(block), nbytes)
    for place, block, nbytes in zip(places, blocks, sizes, strict=True):
        back = memory(nbytes)
        file.read(place, ctypes.addressof(back), nbytes)
        assert back.raw == block.raw


def test_a_place_is_used_again_once_nobody_holds_it(tmp_path: Path) -> None:
    file = DiskFile(tmp_path, 4096)
    for _ in range(10):
        file.take(3 * ALIGNMENT_BYTES)
    assert file._size_bytes == 3 * ALIGNMENT_BYTES


def test_the_file_has_no_name_and_closes_with_its_owner(tmp_path: Path) -> None:
    file = DiskFile(tmp_path, 4096)
    descriptor = file._descriptor
    assert os.listdir(tmp_path) == []
    assert os.fstat(descriptor).st_nlink == 0
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from memplan.codegen.swap.disk import DiskFile\n"
        "file = DiskFile(pathlib.Path(sys.argv[1]), 4096)\n"
        "file.reserve(10**7)\n"
        "print('reserved', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    assert (done.stdout, done.returncode) == ("reserved\n", -signal.SIGKILL)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_found_out_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    file = DiskFile(tmp_path, 4096)
    kept = file.take(4096)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SwapError, match="is full; choose another folder with --swap-dir"):
        file.reserve(10**6)
    with pytest.raises(SwapError, match="is full"):
        file.take(10**6)
    monkeypatch.undo()
    assert file.take(4096) is not kept


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(SwapError, match="choose another folder with --swap-dir"):
        DiskFile(tmp_path / "missing", 4096)


def test_speeds_are_measured(tmp_path: Path) -> None:
    assert min(*disk_speed(tmp_path, 2**20), host_speed()) > 10**6
