"""The best sharding of a program over a mesh, jointly over all axes and in seconds: what `ilp-shard` and `beam-shard` share.

`prices` says what an option or a conversion costs, by building the very operations that `apply-sharding` emits;
`problem` lists the options of a program and the states of its values; `evaluation` adds up what a plan costs and the memory
that it needs; `integer_program` and `beam` search; `pins` reads what the user fixed and `explain` says why."""
