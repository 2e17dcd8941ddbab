"""Measured figures, as tables, and the page that they make."""
