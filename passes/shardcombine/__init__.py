"""ShardCombine: how the rules of operators are discovered by running them; no operator is named here.

`discovery` is the way in: ops in, a `Rule` of each out, asked in a fork (`isolation`). On the way there

| what of the op can vary | `probe_op`: its numbers (slots), what it gives at others; `domains`: what is asked of the interpreters |
| which numbers vary together | `dim_groups` by type inference, `factors`: what is cut and what is left over, `readings`: stricter ways to trust types |
| the op at small sizes | `standins`, and `classes`, which searches for the one of an op; `trial_runs`: whether an op runs at all |
| operands | `arithmetic` (exact scalars, or floats), `draws`: operands with their whole results, as many as it takes |
| shards | `cuts`: how operands are divided, `probing`: whether the results combine |
| special shards | `windows` overlap (`window_shards` runs them), `lookups` and `shifts` need the start of their positions, `partial_operands` are partial sums |
| all of it for one class | `class_rules`; `rule_forms`: cuts as a rule, and back |
| does it hold for the op itself | `last_check`, whatever found it |
| what is known | `cache` |
| how long it may take | `time_limits` |

`callables` and `array_frameworks` do it for any Python callable; `instances` reads a rule at the shapes of one op.
"""
