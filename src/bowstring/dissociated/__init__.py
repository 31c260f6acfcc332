"""The Dissociated IPC protocol without any input or output: messages in, events and messages out."""
