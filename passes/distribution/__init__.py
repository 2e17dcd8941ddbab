"""What the distribution passes share. In go an annotated program and a mesh; out come its choices, placed functions
and schedules. Each part uses the parts before it:

`options` (what a rule lets an op do along one axis), `space` (what may be cut), `pins` (what the user fixed), `mesh`, `conversions`, `shards`, `sizes`, `positions`, `margins` and `lower` (bodies on
devices), here;
`batch` (what the batch does to the program, and bodies at the rows of one microbatch);
`pipeline` (`local_program`: the program in stages, at the rows of one microbatch; schedules; messages beside computation)."""
