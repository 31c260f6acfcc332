"""Sources and sinks of bytes: files, memory, sockets and object stores."""
