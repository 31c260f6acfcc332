from bowstring.inspection.anatomy.builder import build_anatomy as build_anatomy
from bowstring.inspection.anatomy.page import build_anatomy_page as build_anatomy_page
from bowstring.inspection.report_builder import inspect as inspect
