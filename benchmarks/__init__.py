"""Benchmarks of Bowstring and its peers, interleaved in one run: `python -m benchmarks --help`."""
