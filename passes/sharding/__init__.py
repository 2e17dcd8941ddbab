"""The best sharding of a program over a mesh, jointly over all axes and in seconds: what `ilp-shard` and `beam-shard` share.

`prices` says what an option or a conversion costs, by building the very operations that `apply-sharding` emits;
`problem` lists the options of a program and the states of its values, `result` is what a search found; `plans` adds up what a plan costs (`makespan`: where sums do not tell) and `memory` what
it needs; `choice_network` poses the problem without a limit of memory as tables, which `passes/solver` minimises exactly; `within_memory` finds the fastest plan within a limit: `memory_tables` (over `lifetimes`) counts bytes, `relaxation` and
`pricing` price them, `primal_heuristic` finds a plan where prices do not, `branching` parts what prices leave open, `least_memory` finds what a limit must be at least; `integer_program` is the integer program of the
whole formulation; `beam` searches without proof, within a limit in `beam_within` with `memory_lookahead`; `explain` says why."""
