"""Machine files: the built-in ones load and say where each number comes from; bad ones are refused in one line."""

from pathlib import Path

import pytest

from distir.dialects.errors import DistirError
from distir.interpreters.machines import BUILT_IN, load_machine, machine_names
from distir.interpreters.machines.writing import machine_text


def test_names() -> None:
    amazon, nvidia = ["aws-p4d", "aws-p4de"], ["dgx-1", "dgx-2", "dgx-a100", "dgx-a100-40gb", "dgx-b200", "dgx-h100"]
    others = ["grand-teton-h100", "hgx-h200", "l40s", "local-cpu", "mi300x", "tpu-v5p", "v100-pcie"]
    assert machine_names() == [*amazon, *nvidia, *others]


@pytest.mark.parametrize("name", ["dgx-1", "dgx-2", "dgx-a100", "dgx-h100", "local-cpu", "v100-pcie"])
def test_built_in(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert all(figure.source for figure in machine.figures.values())
    level = machine.levels[0].name
    assert {"device.memory_capacity_bytes", f"levels.{level}.latency_seconds"} <= machine.figures.keys()


def test_dgx_2() -> None:
    """Figures of NVIDIA's data sheet: 16 devices of 32 GiB, 125 TFLOP/s in half precision."""
    machine = load_machine("dgx-2")
    assert (machine.levels[0].devices, machine.max_devices) == (16, 16)
    assert machine.device.memory_capacity_bytes == 32 * 2**30
    assert machine.device.peak("f16") == 125e12
    assert machine.device.peak("i64") == machine.device.peak("f32")
    with pytest.raises(DistirError, match="dgx-2 has 16 devices, the program needs 17"):
        machine.check_devices(17)


def test_nodes_follow_from_devices() -> None:
    machine = load_machine("dgx-h100")
    machine.check_devices(16384)
    assert machine.units(0, range(16384)) == [8] * 2048
    assert [machine.spanned_level(group) for group in ([0, 7], [7, 8], [8, 9, 15])] == [0, 1, 0]


def test_unknown_machine() -> None:
    with pytest.raises(DistirError, match=r"^unknown machine dgx-3: expected aws-p4d, .*dgx-2, .*, v100-pcie or"):
        load_machine("dgx-3")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DistirError, match="No such file"):
        load_machine(tmp_path / "none.toml")


LOCAL = (BUILT_IN / "local-cpu.toml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "local-cpu"', "name = 3", "name: expected a string, got 3"),
        ('name = "local-cpu"', "nam = 3", "nam: expected one of name, max_devices, .*, got an unknown key"),
        (
            "value = 2.0e9",
            "value = -1",
            "levels.node.bandwidth_bytes_per_second.value: expected a positive number, got -1",
        ),
        (
            "value = 2.0e9",
            "value = nan",
            "levels.node.bandwidth_bytes_per_second.value: expected a positive number, got nan",
        ),
        ("value = 0.8", "value = 8", "device.matmul_efficiency.value: expected a fraction of at most 1, got 8"),
        ("value = 4294967296", "value = 0.5", "device.memory_capacity_bytes.value: expected a whole number, got 0.5"),
        ("{ value = 2.7e10, source", "{ source", "memory_bandwidth_bytes_per_second: expected a table such as"),
        ("f32 =", "f31 =", "device.peak_flops_per_second.f32: expected a number with a source, got nothing"),
        (
            "latency_seconds",
            "latency_us",
            "levels.node.latency_us: expected one of latency_seconds, got an unknown key",
        ),
        (
            "devices = { value = 64",
            "devices = { value = 0",
            "levels.node.devices.value: expected a positive number, got 0",
        ),
        ("[[levels]]", "[levels]", r"levels: expected one or more tables \[\[levels\]\], got"),
        ("[[levels]]", "[[level]]", "level: expected one of name, .*, got an unknown key"),
        (
            "[[levels]]",
            "[memory]\nworkspace_bytes = { value = -1, source = 'x' }\n[[levels]]",
            "memory.workspace_bytes.value: expected a number that is not negative, got -1",
        ),
        ("[[levels]]", "[overlap]\nslowdown = 3\n[[levels]]", "overlap.slowdown: expected one of compute_slowdown, "),
        (
            "[[levels]]",
            "[[devices]]\n[[levels]]",
            r"device: expected either \[device\] or several \[\[devices\]\], got both",
        ),
        (
            "[device]",
            "max_devices = { value = 65, source = 'x' }\n[device]",
            "max_devices.value: expected at most the 64 devices of the outermost level, node, got 65",
        ),
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
    path.write_text(LOCAL + '\n[levels.fitted.allreduce]\nsource = "test"\n2 = { latency_seconds = 1.0 }\n')
    key = r"levels.node.fitted.allreduce.2.bus_bandwidth_bytes_per_second: expected a positive number, got nothing"
    with pytest.raises(DistirError, match=key):
        load_machine(path)
    path.write_text(LOCAL + '\n[levels.fitted.allredcue]\nsource = "test"\n')
    with pytest.raises(DistirError, match=r"levels.node.fitted.allredcue: expected one of allgather, allreduce, "):
        load_machine(path)


def two_groups(first: int, second: int) -> str:
    """A machine of 64 devices at most, of which some have another peak."""
    start, end = LOCAL.index("[device]"), LOCAL.index("[[levels]]")
    table = LOCAL[start:end].replace("[device.", "[devices.")

    def group(name: str, count: int) -> str:
        head = f'[[devices]]\ncount = {{ value = {count}, source = "test" }}'
        return table.replace("[device]", head).replace('name = "CPU core"', f'name = "{name}"')

    fast = group("fast", second).replace("1.03e11", "2.06e11")
    return LOCAL[:start] + group("slow", first) + fast + LOCAL[end:]


def test_devices_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text(two_groups(4, 2))
    machine = load_machine(path)
    assert (machine.max_devices, machine.is_uniform) == (6, False)
    assert [machine.group_of(device) for device in range(6)] == [0, 0, 0, 0, 1, 1]
    assert machine.seen_from(1).device.peak("f32") == 2.06e11
    assert machine.figures["devices.fast.peak_flops_per_second.f32"].value == 2.06e11
    (tmp_path / "again.toml").write_text(machine_text(machine))
    assert load_machine(tmp_path / "again.toml") == machine
    with pytest.raises(DistirError, match="has 6 devices, the program needs 7"):
        machine.check_devices(7)
    path.write_text(two_groups(60, 20))
    with pytest.raises(
        DistirError, match="devices: expected at most the 64 devices of the outermost level, node, got 80"
    ):
        load_machine(path)
    path.write_text("max_devices = { value = 5, source = 'test' }\n" + two_groups(4, 2))
    with pytest.raises(DistirError, match=r"max_devices.value: expected the sum of the groups' counts, 6, got 5"):
        load_machine(path)


def test_levels_hold_whole_units(tmp_path: Path) -> None:
    path = tmp_path / "levels.toml"
    node = LOCAL[LOCAL.index("[[levels]]") :]
    path.write_text(LOCAL + "\n" + node.replace('"node"', '"pod"').replace("value = 64", "value = 96"))
    with pytest.raises(
        DistirError, match=r"levels.pod.devices.value: expected a multiple of the level below's 64, got 96"
    ):
        load_machine(path)
    path.write_text(LOCAL + "\n" + node)
    with pytest.raises(DistirError, match=r"levels.node: expected different names, got two of this name"):
        load_machine(path)


def test_a_file_says_where_measured_tables_stand_for_its_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An edited link changes nothing for collectives that a table has; it is said once for each file."""
    text = (BUILT_IN / "dgx-a100.toml").read_text(encoding="utf-8").replace("2.85e11", "1.0e11")
    path = tmp_path / "slow.toml"
    path.write_text(text, encoding="utf-8")
    load_machine(path)
    said = capsys.readouterr().err
    assert "allreduce among 2, 3, 4, 5, 6, 7, 8 devices of level node takes what [levels.fitted.allreduce] says" in said
    load_machine(path)
    load_machine("dgx-a100")
    assert capsys.readouterr().err == ""
    load_machine("dgx-a100", ["levels.node.bandwidth_bytes_per_second=1e11"])
    assert "[levels.fitted.allreduce]" in capsys.readouterr().err


def test_a_factor_multiplies_what_the_file_says_and_what_was_measured() -> None:
    """`node.bandwidth=0.5x` halves the link, and each collective's measured bandwidth on it, which would otherwise stand for it."""
    plain, halved = load_machine("dgx-h100"), load_machine("dgx-h100", ["node.bandwidth=0.5x"])
    one, other = plain.levels[0], halved.levels[0]
    assert other.bandwidth_bytes_per_second == one.bandwidth_bytes_per_second / 2
    fits = [(one.fitted[kind][n], other.fitted[kind][n]) for kind in one.fitted for n in one.fitted[kind]]
    assert fits
    assert all(b.bus_bandwidth_bytes_per_second == a.bus_bandwidth_bytes_per_second / 2 for a, b in fits)
    assert all(a.latency_seconds == b.latency_seconds for a, b in fits)
    assert halved.levels[1] == plain.levels[1]
    assert halved.figures["levels.node.bandwidth_bytes_per_second"].source == "--set node.bandwidth=0.5x"
    assert load_machine("dgx-h100 memory_capacity=2x").device.memory_capacity_bytes == 2 * 85899345920
    assert load_machine("dgx-h100", ["device.memory_capacity=40GB"]).device.memory_capacity_bytes == 40_000_000_000


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("bandwidth=2x", "which of levels.node.bandwidth_bytes_per_second, levels.cluster.bandwidth_bytes_per_second"),
        ("node.bandwith=2x", "the machine has no node.bandwith (did you mean node.bandwidth"),
        ("node.bandwidth=nox", "expected a number, got 'no'"),
        ("node.bandwidth=-1x", "expected a positive number, got -"),
        ("device.tiles=2x", "no such number to multiply"),
        ("node.devices=0.3x", "expected a whole number"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting: str, said: str) -> None:
    with pytest.raises(DistirError) as refused:
        load_machine("dgx-h100", [setting])
    assert said in str(refused.value)
