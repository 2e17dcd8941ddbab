"""Whether summaries (`distir.interpreters.simulate.summarize`) are exact: whole grids against executing every operation.

`kernel` executes a program operation by operation from flat tables, compiled if numba is there; `tables` makes them from the
IR, and shares nothing with the summaries but what single operations cost. `programs` are the grids, and `__main__` the command."""
