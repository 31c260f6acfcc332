"""The command `bowstring`: one module per command, imported when the command runs."""
