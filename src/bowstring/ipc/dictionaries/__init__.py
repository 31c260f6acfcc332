"""Dictionaries: reading, writing, deltas («Dictionary Messages»)."""
