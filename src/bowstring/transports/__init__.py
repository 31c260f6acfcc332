"""Channels for the messages of the Dissociated IPC protocol; all pass one conformance suite."""
