"""Descriptions of files and streams: contents, sizes, validity, anatomy. Nothing in this package prints."""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.inspection.anatomy.builder import build_anatomy as build_anatomy
    from bowstring.inspection.anatomy.page import build_anatomy_page as build_anatomy_page
    from bowstring.inspection.inspector import inspect as inspect
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "anatomy.builder": ("build_anatomy",),
            "anatomy.page": ("build_anatomy_page",),
            "inspector": ("inspect",),
        },
    )
