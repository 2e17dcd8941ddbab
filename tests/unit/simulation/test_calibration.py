"""Calibration: probes are programs of the work that they say, the fit finds the machine that made the times, and files hold
machines."""

from pathlib import Path

import pytest
from xdsl.dialects.func import FuncOp

from distir.backends.torch.calibration.fit import Host, errors, fit_machine
from distir.backends.torch.calibration.measure import Sample
from distir.backends.torch.calibration.probes import COLLECTIVES, REPEATS, Probe, probes
from distir.backends.torch.exchange import parse
from distir.dialects.dist.communication import CommunicationOp
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.machines.writing import machine_text
from distir.interpreters.work import Kind, Work, type_bytes, work_of
from distir.passes.project_to_rank import project

HOST = Host("test", 2**30, 4, "test", False)


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_probes_are_programs_of_the_work_that_they_say(processes: int) -> None:
    found = probes(processes, ("f32", "f64"), False)
    kinds = {"matmul", "elementwise", "data_movement"} | ({*COLLECTIVES, "send"} if processes > 1 else set())
    assert {probe.kind for probe in found} == kinds
    for probe in found:
        module = parse(probe.text)
        module.verify()
        project(module, processes - 1, "main")
        (function,) = module.body.block.ops
        assert isinstance(function, FuncOp)
        *ops, _ = function.body.block.ops
        assert len(ops) == REPEATS * (processes if probe.devices == 1 else 1)
        op = ops[0]
        if isinstance(op, CommunicationOp):
            assert max(type_bytes(v.type) for v in (*op.operands, *op.results)) == probe.bytes
        else:
            work = work_of(op)
            assert (str(work.kind), work.flops if probe.flops else 0, work.bytes) == (
                probe.kind,
                probe.flops,
                probe.bytes,
            )


def test_quick_leaves_out_no_kind() -> None:
    quick, full = (probes(2, ("f32",), is_quick) for is_quick in (True, False))
    assert {p.kind for p in quick} == {p.kind for p in full}
    assert len(quick) < len(full)


def samples_of(machine: Machine) -> list[Sample]:
    """What probes would take on a machine that the model describes."""
    model = AnalyticCostModel(machine)

    def seconds(probe: Probe) -> float:
        if probe.kind == "matmul":
            return model.matmul_seconds(Work(Kind.MATMUL, probe.flops, probe.bytes), probe.dtype)
        if probe.kind == "send":
            return model.send_seconds(probe.bytes, 0, 1)
        if probe.kind in COLLECTIVES:
            return model.collective_seconds(probe.kind, probe.bytes, range(probe.devices))
        return model.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, probe.bytes))

    return [Sample(probe, seconds(probe), 0.0) for probe in probes(4, ("f32", "f64"), False)]


def test_the_fit_finds_the_machine_that_made_the_times() -> None:
    """local-cpu reaches 0.8 of 103 GFLOP/s and 0.5 of 27 GB/s; a kernel takes 5 us, a message 50 us, links 2 GB/s."""
    machine = fit_machine("found", HOST, samples_of(load_machine("local-cpu")), {})
    device, level = machine.device, machine.levels[0]
    assert device.peak("f32") == pytest.approx(0.8 * 1.03e11, rel=0.01)
    assert device.peak("f64") == pytest.approx(0.8 * 5.27e10, rel=0.01)
    assert device.memory_bandwidth_bytes_per_second == pytest.approx(0.5 * 2.7e10, rel=0.01)
    assert device.kernel_floor_seconds == pytest.approx(5e-6, rel=0.01)
    assert device.matmul_half_efficiency_flops == pytest.approx(1e6, rel=0.03)
    assert level.latency_seconds == pytest.approx(5e-5, rel=0.01)
    assert level.bandwidth_bytes_per_second == pytest.approx(2e9, rel=0.01)
    # A ring of 2 is 2 steps of 50 us at the link's rate. Of 4, it is a tree of 4 steps up to some size.
    pair = level.fitted["allreduce"][2]
    assert pair.latency_seconds == pytest.approx(2 * 5e-5, rel=0.01)
    assert pair.bus_bandwidth_bytes_per_second == pytest.approx(2e9, rel=0.01)
    assert level.fitted["allreduce"][4].latency_seconds == pytest.approx(4 * 5e-5, rel=0.1)
    assert all(error.median < 0.1 for error in errors(machine, samples_of(load_machine("local-cpu"))))


def test_a_file_holds_the_machine(tmp_path: Path) -> None:
    provenance = {"date": 'a "quoted" day \\ and µs'}
    machine = fit_machine("found", HOST, samples_of(load_machine("local-cpu")), provenance)
    path = tmp_path / "found.toml"
    path.write_text(machine_text(machine), encoding="utf-8")
    read = load_machine(path)
    assert (read.groups, read.levels, read.provenance) == (machine.groups, machine.levels, provenance)
    assert (read.max_devices, dict(read.figures)) == (4, dict(machine.figures))


@pytest.mark.parametrize("name", ["dgx-1", "dgx-2", "dgx-h100", "v100-pcie"])
def test_files_of_built_in_machines_can_be_written(name: str, tmp_path: Path) -> None:
    machine = load_machine(name)
    path = tmp_path / f"{name}.toml"
    path.write_text(machine_text(machine), encoding="utf-8")
    read = load_machine(path)
    assert read == machine
