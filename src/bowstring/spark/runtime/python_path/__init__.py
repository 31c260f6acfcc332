"""A folder on the path of the Python processes of a local session."""
