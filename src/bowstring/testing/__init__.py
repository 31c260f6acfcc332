"""Tools for tests: strategies for Hypothesis, and conformance suites for transports.

They need Hypothesis and pytest, which the extra `test` installs. To test an implementation of
`bowstring.transports.base.Transport`, subclass `TransportConformance` and set its `transport`. To test a client or a
server of the Dissociated IPC protocol in any language, subclass `ClientConformance` or `ServerConformance`.
"""

from bowstring._lazy_exports import attach_lazy_exports

__getattr__, __dir__ = attach_lazy_exports(__name__)
