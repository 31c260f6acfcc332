"""Public names that are imported on first use (PEP 562).

`import bowstring` loads nothing, not even NumPy. The stub `__init__.pyi` of a package imports its public names, for
type checkers and editors. `attach_lazy_exports` reads the same imports, and runs each when its name is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bowstring.fork_safe_imports import completed_before_forks
from bowstring.pyarrow_names import missing_attribute_error, read_public_names


def attach_lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package. Its subpackages are attributes, too, but not in `__all__`.

    `dir` lists only public and special names, for completion in editors and notebooks.
    """

    def get_attribute(name: str) -> object:
        from importlib import import_module

        modules = read_public_names(package)
        if name == "__all__":
            return sorted(name for name, module in modules.items() if module != package)
        if name not in modules:
            raise missing_attribute_error(package, name, f"module {package!r}")
        with completed_before_forks():
            if modules[name] == package:
                return import_module(f"{package}.{name}")
            value = getattr(import_module(modules[name]), name)
        # From now on Python finds the attribute itself, and does not call this function.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        special_names = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted(special_names | read_public_names(package).keys())

    return get_attribute, list_names
