"""Descriptions of files and streams: contents, sizes, validity, anatomy. Nothing in this package prints."""

from bowstring._lazy_exports import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
