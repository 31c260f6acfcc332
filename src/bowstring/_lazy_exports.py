"""Public names that are imported on first use (PEP 562).

`import bowstring` loads nothing, not even NumPy. The stub `__init__.pyi` of a package imports its public names, for
type checkers and editors. `attach_lazy_exports` reads the same imports, and runs each when its name is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

from bowstring.fork_safe_imports import completed_before_forks
from bowstring.pyarrow_names import missing_attribute_error


def attach_lazy_exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package. Its subpackages are attributes, too, but not in `__all__`.

    `dir` lists only public and special names, for completion in editors and notebooks.
    """

    @cache
    def read_imports() -> dict[str, str]:
        """Return the module from which the stub imports each name; a subpackage is imported from the package."""
        # Imported on the first use of a name: `import bowstring` alone must stay fast.
        import ast
        import pkgutil

        stub = pkgutil.get_data(package, "__init__.pyi")
        assert stub is not None
        imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
        return {alias.name: node.module or "" for node in imports for alias in node.names}

    def get_attribute(name: str) -> object:
        from importlib import import_module

        if name == "__all__":
            return sorted(name for name, module in read_imports().items() if module != package)
        if name not in read_imports():
            raise missing_attribute_error(package, name, f"module {package!r}")
        module_name = read_imports()[name]
        with completed_before_forks():
            if module_name == package:
                return import_module(f"{package}.{name}")
            value = getattr(import_module(module_name), name)
        # From now on Python finds the attribute itself, and does not call this function.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        special_names = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted(special_names | read_imports().keys())

    return get_attribute, list_names
