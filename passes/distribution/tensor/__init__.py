"""The tensor axis: `local_program` (the program in stages, at the rows of one microbatch), `space` (what may be cut), `tensor_network` and
`ilp` (the best of it, by elimination or a solver), `variants` (layers that alternate), `tensor_axis` (chooses), `choices` (remembers)."""
