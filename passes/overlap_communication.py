"""`overlap-communication`: messages on streams of their own, beside computation.

Where it stands: level 3 -> level 3, the last pass."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class OverlapCommunicationPass(ModulePass):
    """Puts sends to later stages, sends to earlier ones and collectives on a stream each, collectives of what a function is given on one that runs
    ahead, and issues what feeds a reduction of the entry as early as it can be. Reductions, and gathers, of the same devices are joined to buckets: one message
    of several tensors. With `chunks`, a collective that a device would wait for is cut in chunks together with the contraction that makes its operand or
    first uses its result: one chunk is on its way while another is computed. With a `machine`, only those are that are faster so there, in as many chunks
    as are fastest, and what is computed beside a collective counts by the time that it takes.

    Requires: level 3. Ensures: equal values on equal devices."""

    name = "overlap-communication"
    entry: str = "main"
    """The function that the program begins with."""
    bucket: int = 25 * 2**20
    """The most bytes of one message of several tensors that are reduced, gathered, or reduced and cut; 0: each tensor alone."""
    prefetch: int = 1
    """How many calls of functions that gather parameters, or gathers beside calls, run ahead of computation: what they gather is held meanwhile. 0: any number."""
    chunks: int = 1
    """In how many chunks at most a collective that would be waited for is cut, with the contraction before or after it."""
    in_place: bool = False
    """Whether kernels read and write chunks where they lie, as those of libraries for asynchronous tensor parallelism do: cutting and joining takes no time."""
    machine: str = ""
    """A machine of `distir machines`, or a .toml file, whose costs say which; none: all that can be."""
    cost_model: str = "analytic"
    """As for `simulate`."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.dist.calls import is_placed
        from distir.dialects.errors import DistirError
        from distir.interpreters.cost_models import make_cost_model
        from distir.interpreters.costs import Costs
        from distir.interpreters.entry import entry_function
        from distir.interpreters.machines import load_machine
        from distir.interpreters.ranks import group_of
        from distir.passes.distribution.pipeline.chunk_prices import ChunkPrices
        from distir.passes.distribution.pipeline.chunks import Chunks
        from distir.passes.distribution.pipeline.streams import overlap_communication
        from distir.passes.staging.function_streams import overlap_in_functions

        entry = entry_function(op, self.entry)
        if not is_placed(entry):
            raise DistirError(f"@{self.entry} is not placed: run pipeline-schedule or dtp-parallelize first")
        if self.bucket < 0:
            raise DistirError(f"bucket: expected at least 0 bytes, got {self.bucket}")
        if self.prefetch < 0:
            raise DistirError(f"prefetch: expected at least 0 calls, got {self.prefetch}")
        if self.chunks < 1:
            raise DistirError(f"chunks: expected at least 1, got {self.chunks}")
        prices = None
        if self.machine and self.chunks > 1:
            costs = Costs(make_cost_model(self.cost_model, load_machine(self.machine)))
            prices = ChunkPrices(costs, group_of(op), self.in_place)
        chunks = Chunks(self.chunks, prices, self.in_place)
        overlap_communication(op, entry, self.bucket, chunks)
        overlap_in_functions(op, entry, self.bucket, chunks, self.prefetch)
