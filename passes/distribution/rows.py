"""States and choices of a program of any batch (`interpreters/simulate/batches`: a microbatch has `MARK` rows), at a number of rows. A
factor outside the batch has pieces that grow with the rows; one inside it, such as the heads of each row, has more pieces."""

from __future__ import annotations

from dataclasses import replace

from distir.dialects.sharding import Choice, Pieces, Repeated, Sharded, State, UseFactor, repeated


def state_at(state: State, rows: int) -> State:
    """A state of a program of any batch, at so many rows."""
    if not isinstance(state, Sharded):
        return state
    return Sharded(state.dim, _pieces_at(state.pieces, rows), _pieces_at(state.blocks, rows))


def choice_at(choice: Choice, rows: int) -> Choice:
    """A choice for an operation of a program of any batch, at so many rows."""
    if not isinstance(choice, UseFactor) or not choice.pieces:
        return choice
    pieces = _pieces_at(choice.pieces, rows)
    return replace(choice, pieces=pieces if len(pieces) > 1 else ())


def rows_of_any(rows: int, here: int) -> int | None:
    """Where a program of any batch has so many rows (a multiple of `MARK`) and its copy has these: those of a microbatch. None if the
    first is at a batch of its own."""
    from distir.interpreters.simulate.batches import MARK

    times, rest = divmod(rows, MARK)
    return here // times if times and not rest and here % times == 0 else None


def _pieces_at(pieces: Pieces, rows: int) -> Pieces:
    from distir.interpreters.simulate.batches import dim_at

    if isinstance(pieces, Repeated):
        return repeated(tuple([dim_at(piece, rows) for piece in pieces.period]), dim_at(pieces.times, rows))
    return tuple([dim_at(piece, rows) for piece in pieces])
