"""ShardCombine: how the rules of operators are discovered by running them; no operator is named here.

`discovery` is the way in: an op in, its `Rule` out. On the way: `subject` (what of an op can vary), `scaling` (which
dims vary together, by type inference), `standins` (small sizes and the class of an op; where types say too little, by
running it), `arithmetic` over `scalars` (exact probes, or floats), `probing` (cut, run, combine) and `cache`. `domains` says what is asked of the interpreters.
`instances` reads a rule at the shapes of one op.
"""
