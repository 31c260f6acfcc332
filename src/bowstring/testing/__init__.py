"""Tools for tests: strategies for Hypothesis, and a conformance suite for transports.

They need Hypothesis and pytest, which the extra `test` installs. To test an implementation of
`bowstring.transports.base.Transport`, subclass `TransportConformance` and set its `transport`.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)
