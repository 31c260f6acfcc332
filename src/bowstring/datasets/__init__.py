"""Data for training loops: one order of rows for all readers, divided among ranks, resumable at any batch."""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)
