"""Where batches meet the protocol: serving and connecting, sharing a table, the keeper of each host."""
