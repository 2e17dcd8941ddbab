"""Exact arithmetic in which rules are discovered: residues, scalars, arrays of them, and polynomials in several variables."""
