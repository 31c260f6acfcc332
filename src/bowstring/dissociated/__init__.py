"""The Dissociated IPC protocol without I/O: messages in, events and messages out."""
