"""Tools for tests of packages that extend Bowstring.

`strategies` has strategies for Hypothesis, `transport_conformance` the tests that every transport passes, and
`descriptors` checks that descriptors are closed.
"""
