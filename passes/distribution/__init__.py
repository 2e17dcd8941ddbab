"""What the distribution passes share, in the order in which `plan` uses it:

`options` (what a rule lets an op do along one axis), `batch_axis` (what the batch does to the program), `stages` and
`weights` (which stage an op belongs to), `localize` and `sizes` (bodies at the rows of one microbatch), `local_program` (these
steps together), `space`, `ilp` and `variants` (the tensor axis; `tensor_axis` chooses it, `choices` remembers), `mesh`,
`conversions`, `shards` and `lower` (bodies on devices), `tasks`, `replica` and `assemble` (the schedule, what one replica does
in it, and the entry), `search` (a grid of plans: `best_first`, with `bounds`; `one_rank` keeps its programs narrow),
`inline`."""
