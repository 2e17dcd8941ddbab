"""Measurements. Not installed, and no product code imports them."""
