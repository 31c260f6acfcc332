"""Share tables between processes: `share` and `attach`, `serve` and `connect`, and the host agent."""
