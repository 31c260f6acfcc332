"""Where bytes come from and go to: files, memory, sockets, stores."""
