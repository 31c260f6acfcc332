"""Descriptions of files and streams: contents, sizes, validity, anatomy. Nothing in this package prints."""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)
