"""A timeline opened lazily equals the op-by-op simulation's after filtering, for all programs; so do memory and its peak."""

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.sharding import AxesAttr
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.critical import critical_path
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.live_tensors import peak_of
from distir.interpreters.simulate.occupancy import device_times
from distir.interpreters.simulate.summaries import open_program
from tests import small_models
from tests.unit import random_modules, random_programs

QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large]


def expanded(module: ModuleOp) -> Expansion:
    return Expansion(open_program(module, random_modules.MACHINE, random_modules.Uneven))


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs(), st.data())
def test_a_window_is_the_filtered_timeline(module: ModuleOp, data: Any) -> None:
    oracle, expansion = simulate(module, random_modules.MACHINE, random_modules.Uneven), expanded(module)
    everything = list(oracle.spans())
    assert sorted(expansion.spans()) == sorted(everything)
    end = oracle.makespan_picoseconds
    start = data.draw(st.integers(0, end))
    window = (start, data.draw(st.integers(start, end + 1)))
    devices = data.draw(st.frozensets(st.integers(0, random_modules.DEVICES - 1)))
    depth = data.draw(st.sampled_from([1, 2, 3, None]))
    expected = [s for s in everything if s.meets(window, devices) and (depth is None or len(s.path) < depth)]
    assert sorted(expansion.spans(window, devices, depth)) == sorted(expected)


@settings(max_examples=40, deadline=None, suppress_health_check=QUICK)
@given(random_programs.programs())
def test_all_spans_of_programs_with_every_operation(program: random_programs.Program) -> None:
    oracle = simulate(program.module, random_modules.MACHINE, random_modules.Uneven)
    assert sorted(expanded(program.module).spans()) == sorted(oracle.spans())


@settings(max_examples=40, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs(), st.data())
def test_memory_over_time(module: ModuleOp, data: Any) -> None:
    """All levels, and at any depth the same peak."""
    oracle, expansion = simulate(module, random_modules.MACHINE, random_modules.Uneven), expanded(module)
    levels = list(expansion.levels())
    for device in range(oracle.devices):
        expected = [level for level in oracle.levels(device)]
        found = [level for level in levels if level.device == device]
        assert _changes(found) == _changes(expected)
    depth = data.draw(st.integers(1, 3))
    peaks = dict.fromkeys(range(oracle.devices), 0)
    for level in expansion.levels(depth=depth):
        peaks[level.device] = max(peaks[level.device], level.bytes)
    assert peaks == oracle.peak_memory_bytes


def _changes(levels: list[Any]) -> list[Any]:
    """Levels that differ from the one before."""
    return [
        level for before, level in zip([None, *levels], levels, strict=False) if before is None or before[2] != level[2]
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs())
def test_what_is_live_adds_up_to_the_peak(module: ModuleOp) -> None:
    oracle, expansion = simulate(module, random_modules.MACHINE, random_modules.Uneven), expanded(module)
    for device, peak in oracle.peak_memory_bytes.items():
        found = peak_of(expansion, device)
        assert found.bytes == peak
        assert sum(h.total_bytes for h in found.live_tensors) == peak


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs())
def test_the_critical_path_adds_up_to_the_makespan(module: ModuleOp) -> None:
    """It has no gap, and neither have its spans, of which none is a call: these programs are small."""
    oracle, found = simulate(module, random_modules.MACHINE, random_modules.Uneven), critical_path(expanded(module))
    assert found.picoseconds == oracle.makespan_picoseconds
    ends = [0, *[span.end for span in found.spans]]
    assert [span.start for span in found.spans] == ends[:-1]
    assert ends[-1] == oracle.makespan_picoseconds
    assert all(span.kind != "call" for span in found.spans)
    times = oracle.counts
    for link, count in found.times.items():
        assert 0 < count <= times[link.name]


@settings(max_examples=40, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs())
def test_device_times_count_every_picosecond_once(module: ModuleOp) -> None:
    """Against a list of all moments at which something starts or ends."""
    oracle = simulate(module, random_modules.MACHINE, random_modules.Uneven)
    spans = [span for span in oracle.spans() if span.kind != "call"]
    moments = sorted({0, oracle.makespan_picoseconds, *[m for span in spans for m in (span.start, span.end)]})
    for device, found in enumerate(device_times(expanded(module))):
        compute = communication = hidden = 0
        for start, end in pairwise(moments):
            doing = {s.communicates for s in spans if s.stream[0] == device and s.start <= start < s.end}
            compute += (end - start) * (False in doing)
            communication += (end - start) * (doing == {True})
            hidden += (end - start) * (doing == {True, False})
        assert found[:4] == (compute, communication, oracle.makespan_picoseconds - compute - communication, hidden)


@settings(max_examples=60, deadline=None, suppress_health_check=QUICK)
@given(random_modules.programs())
def test_communication_is_along_the_first_axis_that_its_devices_differ_in(module: ModuleOp) -> None:
    """Devices 0, 1, 2, 3 are at (0, 0), (0, 1), (1, 0), (1, 1); messages of the steps of the op-by-op simulation."""
    module.attributes["dist.axes"] = AxesAttr((("outer", 8), ("inner", 2)))
    oracle = simulate(module, random_modules.MACHINE, random_modules.Uneven)
    computes = [
        (stream[0], span.start, span.end)
        for span in oracle.spans()
        if span.kind != "call" and not span.communicates
        for stream in [span.stream]
    ]
    for device, found in enumerate(device_times(expanded(module))):
        busy = {m for d, *window in computes if d == device for m in window}
        for axis in ("outer", "inner"):
            messages = [
                (step.start_picoseconds, step.end_picoseconds)
                for step in oracle.steps
                if step.placed.communicates
                and step.placed.cost.picoseconds
                and device in (devices := {d for d, _ in step.placed.streams})
                and len(devices) > 1
                and axis == ("outer" if len({d // 2 for d in devices}) > 1 else "inner")
            ]
            moments = sorted(busy | {m for message in messages for m in message})
            exposed = hidden = 0
            for start, end in pairwise(moments):
                if any(first <= start < last for first, last in messages):
                    computing = any(d == device and first <= start < last for d, first, last in computes)
                    hidden += (end - start) * computing
                    exposed += (end - start) * (not computing)
            assert found.by_axis.get(axis, (0, 0)) == (exposed, hidden)


def test_the_loop_of_a_replica_is_part_of_the_entry() -> None:
    """Closed calls are those of stages, though every replica's are inside one call."""
    module = small_models.mlp(batch=8).distributed(dp=2, pp=2, microbatches=2)
    spans = Expansion(open_program(module, "dgx-2")).spans(depth=1)
    forward = [span for span in spans if span.name.startswith("forward")]
    assert len(forward) == 2 * 2 * 2  # stages, replicas, microbatches
