"""Publish data frames: the partitions in the memory of the executors' hosts."""
