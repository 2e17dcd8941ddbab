"""What one kernel executes: `grouping` finds operations that a backend runs as one, `outlining` makes functions of them."""
