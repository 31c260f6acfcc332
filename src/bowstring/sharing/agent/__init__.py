"""Host agents: processes that hold published partitions, with their clients and the secret between hosts."""
