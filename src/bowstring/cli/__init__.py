"""The command `bowstring`: one module a command, imported only when that command runs."""
