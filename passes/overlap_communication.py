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
    first uses its result: one chunk is on its way while another is computed.

    Requires: level 3. Ensures: equal values on equal devices."""

    name = "overlap-communication"
    entry: str = "main"
    """The function that the program begins with."""
    bucket: int = 25 * 2**20
    """The most bytes of one message of several tensors that are reduced, gathered, or reduced and cut; 0: each tensor alone."""

    chunks: int = 1
    """In how many chunks a collective that would be waited for is cut, with the contraction before or after it."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.dist.calls import is_placed
        from distir.dialects.errors import DistirError
        from distir.interpreters.entry import entry_function
        from distir.passes.distribution.pipeline.streams import overlap_communication
        from distir.passes.staging.function_streams import overlap_in_functions

        entry = entry_function(op, self.entry)
        if not is_placed(entry):
            raise DistirError(f"@{self.entry} is not placed: run pipeline-schedule or dtp-parallelize first")
        overlap_communication(op, entry, self.bucket, self.chunks)
        overlap_in_functions(op, entry, self.bucket, self.chunks)
