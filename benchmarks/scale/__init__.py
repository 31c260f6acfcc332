"""What a large cluster would do: constants measured on this machine, and a simulation of the rest.

`python -m benchmarks.scale` measures the constants, compares the simulation with larger runs on this machine, and
prints the tables of docs/evidence/index.md.
"""
