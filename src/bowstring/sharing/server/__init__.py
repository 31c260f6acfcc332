"""The server of data sets, its options, clients and statistics."""
