from bowstring.inspection.anatomy.builder import build_anatomy as build_anatomy
from bowstring.inspection.anatomy.page import build_anatomy_page as build_anatomy_page
from bowstring.inspection.header_inspection import inspect as inspect
