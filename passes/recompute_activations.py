"""`recompute-activations`: the backward part of a training step computes again what it needs of the forward part, instead of keeping it.

Where it stands: after `outline-repeats`, or on what `pipeline-stages` made, before `microbatch`, so that the operations that are repeated get
rules, shards and times like any other."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass


@dataclass(frozen=True)
class RecomputeActivationsPass(ModulePass):
    """Repeats operations of the forward part in the backward part, where what they make is first needed, so that less is kept between the two.
    `full`: each layer keeps its inputs. `selective`: what is repeated frees more bytes for its time, on `machine`, than repeating the whole layer
    would (a minimum cut). `full:2` and `selective:2` do so in the first 2 layers of each stage, `full:4/2/0` in 4 of the first stage, 2 of the second, none of the others. Otherwise `policy` names modules or operations, as in
    "attention,aten.gelu", whose results are not kept.

    A layer is a function that the forward part calls; where more is kept outside of them, the operations between are cut into segments where
    few bytes cross. Draws are functions of a key, and their repetition takes the same key.

    Requires: level 1 or 2, before `microbatch`. Ensures: equal semantics, to the bit. Keeps all `dist.*` attributes of operations."""

    name = "recompute-activations"
    policy: str = "selective"
    """none, full, selective, full:2, full:4/2/0, or names of modules or operations."""
    machine: str = "dgx-a100"
    """A machine of `distir machines`, or a .toml file: whose costs count."""
    cost_model: str = "analytic"
    """How costs are found: analytic, distir, or a plug-in's."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from distir.dialects.dist import MicrobatchesOp
        from distir.dialects.errors import DistirError
        from distir.interpreters.cost_models import make_cost_model
        from distir.interpreters.costs import Costs
        from distir.interpreters.entry import entry_function
        from distir.interpreters.machines import load_machine
        from distir.passes.recomputation.policies import Policy, Recomputation
        from distir.passes.recomputation.staged import restage, unstage
        from distir.passes.staging.order import is_staged

        policy, entry = Policy.read(self.policy), entry_function(op)
        costs = Costs(make_cost_model(self.cost_model, load_machine(self.machine)))
        if any(isinstance(each, MicrobatchesOp) for each in entry.body.block.ops):
            raise DistirError(
                "recompute-activations: the loop over microbatches is there already: recompute before microbatch"
            )
        groups = unstage(op, entry) if is_staged(entry) else {}
        Recomputation(op, entry, costs, policy, groups).apply()
        if groups:
            restage(op, entry, groups)
