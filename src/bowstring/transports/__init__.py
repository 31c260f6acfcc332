"""Ways that the messages of the Dissociated IPC protocol travel; all pass one conformance suite."""
