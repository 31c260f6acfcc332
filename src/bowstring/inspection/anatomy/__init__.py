"""The anatomy of a file or a stream: whose every byte is («Encapsulated message format», «IPC File Format»), and a page
that shows it.
"""
