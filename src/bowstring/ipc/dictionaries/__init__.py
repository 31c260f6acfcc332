"""Dictionaries on the way: read, written, grown."""
