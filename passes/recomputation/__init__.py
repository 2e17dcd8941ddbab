"""What a training step computes again in its backward part: which operations, and the program that does."""
