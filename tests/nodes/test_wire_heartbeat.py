from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.wire import HeartbeatReport
from tests.nodes.test_wire_register import JSON

READINGS = ("available_vram", "total_vram", "available_ram", "available_disk", "total_disk")


def test_a_localai_beat_is_understood() -> None:
    body = {
        "available_vram": 12_000_000_000,
        "available_ram": 40,
        "total_disk": 1000,
        "available_disk": 0,
    }
    assert HeartbeatReport.decode(body) == HeartbeatReport(
        available_vram=12_000_000_000, available_ram=40, total_disk=1000, available_disk=0
    )


@pytest.mark.parametrize("body", [{}, None, [], "beat", 7, {"available_vram": None}])
def test_an_empty_or_senseless_body_is_a_beat_that_tells_nothing(body: Any) -> None:
    assert HeartbeatReport.decode(body) == HeartbeatReport()


@pytest.mark.parametrize("value", ["7", 7.0, True, -1, 2**64, [7], {}])
def test_a_reading_of_the_wrong_kind_is_left_out_and_the_others_count(value: Any) -> None:
    report = HeartbeatReport.decode({"available_vram": value, "available_ram": 5})
    assert report == HeartbeatReport(available_ram=5)


@pytest.mark.parametrize("vendor", ["n" * 33, "nv\x00", 7, "\ud800"])
def test_a_vendor_that_could_not_be_stored_is_left_out(vendor: Any) -> None:
    assert HeartbeatReport.decode({"gpu_vendor": vendor}).gpu_vendor is None


def test_keys_match_in_any_case() -> None:
    assert HeartbeatReport.decode({"Available_VRAM": 5, "GPU_vendor": ""}) == HeartbeatReport(
        available_vram=5, gpu_vendor=""
    )


@given(st.dictionaries(st.sampled_from([*READINGS, "gpu_vendor"]), JSON) | JSON)
def test_no_body_whatever_is_an_error(anything: Any) -> None:
    HeartbeatReport.decode(anything)
