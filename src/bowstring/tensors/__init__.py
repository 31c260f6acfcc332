"""Tensors («Tensor (Multi-dimensional Array) Message Format», «SparseTensor Message Format»)."""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)
