"""What the distribution passes share. Rooms, each using those before it:

`options` (what a rule lets an op do along one axis), `mesh`, `conversions`, `shards`, `sizes`, `positions`, `margins` and `lower` (bodies on
devices), here;
`batch` (what the batch does to the program, and bodies at the rows of one microbatch);
`pipeline` (stages; the schedule, what one replica does in it, and the entry);
`tensor` (the tensor axis, chosen on a program in stages);
`plan`, here (the steps of `dtp-parallelize` in order);
`search` (a grid of plans, simulated)."""
