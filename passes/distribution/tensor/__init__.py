"""The tensor axis: `tensor_network` and
`ilp` (the best of it, by elimination or a solver), `variants` (layers that alternate), `tensor_axis` (chooses), `choices` (remembers)."""
