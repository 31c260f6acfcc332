"""The canonical extension types («Canonical Extension Types»), known from the start: a field that names one gets it.

Their modules are loaded when a name of theirs is first met, or one of their constructors asked for.
"""
