"""Minimises a network of cost functions: the network goes in, the cheapest assignment or a bound comes out. It knows
arrays and deadlines alone, no IR. `elimination` (exact where tables stay small), `bounds` (by passing messages),
`implicit_tables` and `shared_values` (tables over many variables, of few parts), `sparse_tables` and
`sparse_elimination` (what bounds leave of tables), `table_program` (the integer program for the rest). All of it
ends at one `deadline`."""
