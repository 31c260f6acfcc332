"""Tensors («Tensor (Multi-dimensional Array) Message Format», «SparseTensor Message Format»)."""
