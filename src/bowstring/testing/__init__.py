"""What tests need: strategies for Hypothesis, and the conformance suite of the transports."""
