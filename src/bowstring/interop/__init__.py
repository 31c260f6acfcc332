"""Zero-copy data exchange with other libraries in the same process."""
