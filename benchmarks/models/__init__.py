"""Models that nobody wrote for this project, and what each step does to them."""
