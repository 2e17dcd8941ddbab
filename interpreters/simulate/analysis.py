"""The analysis of a program for a performance engineer: will it fit, how fast is it, and why. In go a program and a
machine; out come its summary, peak memory, critical path and device times, each found when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import InterpreterFunctions

from distir.interpreters.cost_models import CostModel
from distir.interpreters.machines import Machine
from distir.interpreters.ranks import explicit
from distir.interpreters.simulate.allocator import reserved_bytes
from distir.interpreters.simulate.critical import CriticalPath, critical_path
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.live_tensors import Peak, peak_of
from distir.interpreters.simulate.occupancy import DeviceTime, device_times
from distir.interpreters.simulate.summaries import Summary, SummaryMemo, open_program


class Analysis:
    """A program on a machine; the same arguments and errors as `summarize`."""

    def __init__(
        self,
        module: ModuleOp,
        machine: Machine,
        cost_model: str | type[CostModel] = "analytic",
        entry: str = "main",
        functions: Sequence[InterpreterFunctions] = (),
        memo: SummaryMemo | None = None,
    ):
        self.machine, self.module = machine, module
        self._open = partial(
            open_program, machine=machine, cost_model=cost_model, entry=entry, functions=functions, memo=memo
        )

    @cached_property
    def summary(self) -> Summary:
        """Clocks, peaks and counts."""
        return self._open(self.module).summary()

    @cached_property
    def expansion(self) -> Expansion:
        """The program, device by device."""
        return Expansion(self._open(explicit(self.module)))

    @cached_property
    def device_times(self) -> list[DeviceTime]:
        """What the time of each device goes to."""
        return device_times(Expansion(self._open(self.module)))

    @cached_property
    def critical_path(self) -> CriticalPath:
        """What the makespan follows."""
        return critical_path(self.expansion)

    def peak(self, device: int) -> Peak:
        """What a device holds when it holds the most."""
        return peak_of(self.expansion, device)

    def reserved_bytes(self, device: int) -> int:
        """What a device has from its driver at most (`allocator`)."""
        return reserved_bytes(self.expansion.program, device, self.machine)
