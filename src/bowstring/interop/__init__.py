"""Handing data to other libraries of the same process, and taking theirs, without copying."""
