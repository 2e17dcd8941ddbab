"""`fuse-kernels`: what a backend executes as one kernel becomes a function marked `dist.kernel`, called where the operations were.

Where it stands: level 3 -> level 3, the last pass (or level 1 or 2, on functions that are not placed)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

EAGER = "eager"
"""What runs every operation as a kernel of its own."""


@dataclass(frozen=True)
class FuseKernelsPass(ModulePass):
    """Makes a function marked `dist.kernel` of what a backend executes as one kernel, by dependence and shape; the simulator charges it what it
    reads, writes and computes, and what is inside takes no memory.

    Requires: static shapes. Ensures: equal values; what is a kernel already stays as it is."""

    name = "fuse-kernels"
    backend: str = "inductor"
    """Whose kernels: inductor (torch.compile), megatron (Megatron-LM's), foreach (PyTorch's eager mode, which updates many parameters at once), or
    eager, which leaves operations alone; or one that a plug-in registers."""
    modules: str = ""
    """The modules of the model whose operations are joined, as in "layers" (also of "decoder.layers.0"), where the model is compiled in parts; none: everything."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from xdsl.dialects.func import FuncOp

        from distir.dialects.dist.calls import KERNEL
        from distir.dialects.errors import DistirError
        from distir.passes.kernels.grouping import BACKENDS, Grouping
        from distir.passes.kernels.outlining import Kernels

        if self.backend == EAGER:
            return
        if self.backend not in BACKENDS:
            raise DistirError(f"backend: expected {EAGER}, {', '.join(BACKENDS)}, got '{self.backend}'")
        backend = BACKENDS[self.backend]
        if self.modules:
            backend = replace(backend, modules=self.modules)
        kernels = Kernels(op)
        functions = [f for f in op.body.block.ops if isinstance(f, FuncOp) and not f.is_declaration]
        for function in functions:
            if KERNEL not in function.attributes and len(function.body.blocks) == 1:
                block = function.body.block
                kernels.outline(block, Grouping(block, backend).groups())
