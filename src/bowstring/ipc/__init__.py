"""Arrow IPC: streams and files («Serialization and Interprocess Communication (IPC)»)."""
