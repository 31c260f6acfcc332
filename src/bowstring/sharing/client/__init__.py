"""Clients of data sets: by one URI or several, in one part or many."""
