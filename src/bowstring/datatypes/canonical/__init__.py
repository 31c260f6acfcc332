"""The canonical extension types («Canonical Extension Types»), registered by default.

Each module is imported on first use of its type's name or constructor.
"""
