"""How a network of tables is minimised: elimination, bounds by message passing, sparse and factored tables. Arrays and deadlines only: no IR."""
