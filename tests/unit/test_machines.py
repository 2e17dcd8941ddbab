"""Machine files: the built-in ones load and say where each number comes from; bad ones are refused in one line."""

from pathlib import Path

import pytest

from distir.dialects.errors import DistirError
from distir.interpreters.machines import BUILT_IN, load_machine, machine_names


def test_names() -> None:
    assert machine_names() == ["dgx-2", "dgx-a100", "dgx-h100", "local-cpu"]


@pytest.mark.parametrize("name", ["dgx-2", "dgx-a100", "dgx-h100", "local-cpu"])
def test_built_in(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert all(machine.sources.values())
    assert {"device.memory_capacity_bytes", "intra_node_link.latency_seconds"} <= machine.sources.keys()


def test_dgx_2() -> None:
    """Figures of NVIDIA's data sheet: 16 devices of 32 GiB, 125 TFLOP/s in half precision."""
    machine = load_machine("dgx-2")
    assert (machine.devices_per_node, machine.max_devices) == (16, 16)
    assert machine.device.memory_capacity_bytes == 32 * 2**30
    assert machine.device.peak("f16") == 125e12
    assert machine.device.peak("i64") == machine.device.peak("f32")
    with pytest.raises(DistirError, match="dgx-2 has 16 devices, the program needs 17"):
        machine.check_devices(17)


def test_nodes_follow_from_devices() -> None:
    machine = load_machine("dgx-h100")
    machine.check_devices(16384)
    assert [machine.node_of(device) for device in (0, 7, 8, 16383)] == [0, 0, 1, 2047]


def test_unknown_machine() -> None:
    with pytest.raises(DistirError, match=r"^unknown machine dgx-3: expected dgx-2, dgx-a100, dgx-h100, local-cpu or"):
        load_machine("dgx-3")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DistirError, match="No such file"):
        load_machine(tmp_path / "none.toml")


LOCAL = (BUILT_IN / "local-cpu.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "local-cpu"', "name = 3", "name: expected a string, got 3"),
        ('name = "local-cpu"', "nam = 3", "nam: expected one of name, devices_per_node, .*, got an unknown key"),
        ("value = 2.0e9", "value = -1", "intra_node_link.bandwidth_bytes_per_second.value: expected a positive number"),
        ("value = 0.8", "value = 8", "device.matmul_efficiency.value: expected a fraction of at most 1, got 8"),
        ("value = 4294967296", "value = 0.5", "device.memory_capacity_bytes.value: expected a whole number, got 0.5"),
        ("{ value = 2.7e10, source", "{ source", "memory_bandwidth_bytes_per_second: expected a table such as"),
        ("f32 =", "f31 =", "device.peak_flops_per_second.f32: expected a number with a source, got nothing"),
        ("max_devices = { value = 64", "max_devices = { value = 65", "inter_node_link: expected a table, or"),
        ("[intra_node_link]", "[intra_node_links]", "intra_node_links: expected one of"),
        ("[device]", "[device", "Expected"),
    ],
)
def test_bad_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    assert old in LOCAL
    path.write_text(LOCAL.replace(old, new, 1))
    with pytest.raises(DistirError, match=message) as raised:
        load_machine(path)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"machine file {path}: ")


def test_bad_fit(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(LOCAL + '\n[intra_node_link.fitted.allreduce]\nsource = "test"\n2 = { latency_seconds = 1.0 }\n')
    key = r"intra_node_link.fitted.allreduce.2.bus_bandwidth_bytes_per_second: expected a positive number, got nothing"
    with pytest.raises(DistirError, match=key):
        load_machine(path)
