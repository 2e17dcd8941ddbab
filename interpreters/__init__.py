"""How a program is understood: mixed types and values, placement, concrete execution, cost and memory."""
