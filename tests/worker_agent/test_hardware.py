import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from tests.worker_machine.loops import in_loop
from worker import hardware
from worker.hardware import Hardware
from worker.sizes import size_in_words


@in_loop
async def test_memory_and_disk_are_those_of_this_machine(tmp_path: Path) -> None:
    told = await Hardware(disk=tmp_path).readings()
    assert told.total_ram == psutil.virtual_memory().total
    assert 0 < told.available_ram <= told.total_ram
    assert told.total_disk == shutil.disk_usage(tmp_path).total
    assert 0 <= told.available_disk <= told.total_disk


@in_loop
async def test_a_models_directory_that_is_not_there_yet_is_measured_where_it_will_be(
    tmp_path: Path,
) -> None:
    told = await Hardware(disk=tmp_path / "not" / "yet").readings()
    assert told.total_disk == shutil.disk_usage(tmp_path).total


@in_loop
async def test_a_demo_machine_claims_what_it_was_told_to(tmp_path: Path) -> None:
    pretending = Hardware(disk=tmp_path, pretend_vram=24 * 2**30)
    gpu, told = await pretending.gpu(), await pretending.readings()
    assert (gpu.vendor, gpu.capability) == ("nvidia", "nvidia-cuda-12")
    assert told.total_vram == 24 * 2**30
    assert told.available_vram is not None
    assert 0 < told.available_vram <= 24 * 2**30  # the test run has children of its own


@in_loop
async def test_what_its_backends_hold_is_not_free_on_a_demo_machine(tmp_path: Path) -> None:
    pretending = Hardware(disk=tmp_path, pretend_vram=24 * 2**30)
    before = (await pretending.readings()).available_vram
    code = "held = bytearray(b'x') * 2**28; print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as backend:
        assert backend.stdout is not None
        backend.stdout.readline()
        told = (await pretending.readings()).available_vram
        backend.kill()
    assert before is not None
    assert told is not None
    assert before - told > 2**27


def test_the_machine_is_named_as_go_names_it() -> None:
    assert hardware.architecture() not in ("x86_64", "aarch64")
    assert hardware.system() == hardware.system().lower()


def test_sizes_are_told_as_localai_tells_them() -> None:
    sizes = {0: "0 B", 512: "512 B", 1024: "1.0 KiB", 432_013_312: "412.0 MiB"}
    assert {count: size_in_words(count) for count in sizes} == sizes
    assert size_in_words(5 * 2**50) == "5120.0 TiB"
