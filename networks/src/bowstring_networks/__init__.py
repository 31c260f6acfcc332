"""Other networks for Bowstring: UCX, libfabric, memory of NVIDIA GPUs (CUDA), and Arrow Flight.

Each has a package: `ucx`, `fabric`, `cuda`, `flight`. Bowstring finds them as entry points, by the scheme of a URI.
"""
