"""The anatomy of a file or stream: the meaning of each byte («Encapsulated message format», «IPC File Format»), and an
HTML page that shows it.
"""
