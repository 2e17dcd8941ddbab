"""The simulator. In go a distributed program and a machine; out come its run time and the memory of each device.

`simulate` is the op-by-op oracle: it executes every operation of the schedule, calls entered one by one, on clocks
and storages instead of tensors (`schedule`), and records the steps (`Simulation`). Semantics, exactly:

* Every stream of every device has a clock. An operation over the streams S with cost c starts at
  `t = max(clock[s] for s in S)` and sets `clock[s] = t + c` for all of them; `dist.move` only sets
  `clock[target] = max(clock[target], clock[source])`.
* A tensor occupies its device from its operation until its last use in program order, exactly as if every call were
  inlined. Views share their operand's memory. Entry arguments stay, and results stay to the end; a result that
  updates an argument (same `dist.name`, a parameter or state) on the same device has that argument's memory.
* Time is integer picoseconds and memory integer bytes.

`summarize` finds the same numbers and executes nothing twice (`summaries`): the simulator of a search.
"""

from distir.interpreters.simulate.result import Simulation
from distir.interpreters.simulate.schedule import simulate
from distir.interpreters.simulate.summaries import Summary, SummaryMemo, summarize

__all__ = ["Simulation", "Summary", "SummaryMemo", "simulate", "summarize"]
