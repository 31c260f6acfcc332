"""Tensors («Tensor (Multi-dimensional Array) Message Format», «SparseTensor Message Format»)."""

from bowstring._lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
