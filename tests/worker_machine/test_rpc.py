import subprocess
import sys
from pathlib import Path

import pytest

from worker.rpc import backend_pb2 as pb

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = ["backend_pb2.py", "backend_pb2.pyi", "backend_pb2_grpc.py"]


def test_what_is_committed_is_what_the_proto_says(tmp_path: Path) -> None:
    told = (REPOSITORY / "Makefile").read_text()
    outputs = ["python_out", "pyi_out", "grpc_python_out"]
    assert all(f"--{output}=$(PROTOS_TO)" in told for output in outputs)
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", "-I."),
            *(f"--{output}={tmp_path}" for output in outputs),
            "worker/rpc/backend.proto",
        ],
        cwd=REPOSITORY,
        check=True,
    )
    for name in FILES:
        committed = REPOSITORY / "worker" / "rpc" / name
        assert (tmp_path / "worker" / "rpc" / name).read_text() == committed.read_text(), name


def test_methods_have_the_paths_of_the_contract() -> None:
    service = pb.DESCRIPTOR.services_by_name["Backend"]
    assert service.full_name == "backend.Backend"
    assert [method.name for method in service.methods] == [
        "Health",
        "LoadModel",
        "Free",
        "Status",
        "Predict",
        "PredictStream",
        "Embedding",
        "TokenizeString",
    ]


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (pb.ModelOptions, {1, *range(2, 16), *range(17, 22), *range(26, 76)}),
        (pb.PredictOptions, {*range(1, 24), *range(25, 55)}),
        (pb.Reply, set(range(1, 9))),
        (pb.EmbeddingResult, set(range(1, 6))),
    ],
)
def test_every_field_number_of_the_contract_is_there_and_no_other(
    message: type[pb.ModelOptions], numbers: set[int]
) -> None:
    assert {field.number for field in message.DESCRIPTOR.fields} == numbers


def test_bytes_on_the_wire_are_those_of_the_contract() -> None:
    assert pb.Reply(message=b"OK").SerializeToString() == b"\x0a\x02OK"
    assert pb.Result(message="m", success=True).SerializeToString() == b"\x0a\x01m\x10\x01"
    options = pb.ModelOptions(Model="m", ModelFile="/f", Options=["a:b"])
    assert options.SerializeToString() == b"\x0a\x01m\xaa\x01\x02/f\xf2\x03\x03a:b"
    asked = pb.PredictOptions(Prompt="p", Tokens=5, ModelIdentity="m")
    assert asked.SerializeToString() == b"\x0a\x01p\x20\x05\xb2\x03\x01m"
    broken = pb.StatusResponse(state=pb.StatusResponse.State.ERROR)
    assert broken.SerializeToString() == b"\x08" + b"\xff" * 9 + b"\x01"


def test_the_stubs_need_nothing_else_of_the_worker() -> None:
    code = "import sys, worker.rpc.client; print(*sorted(m for m in sys.modules if 'worker' in m))"
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.split()
    ours = {name for name in told if name.split(".")[0] == "worker"}
    assert ours == {
        "worker",
        "worker.rpc",
        "worker.rpc.backend_pb2",
        "worker.rpc.backend_pb2_grpc",
        "worker.rpc.client",
    }
