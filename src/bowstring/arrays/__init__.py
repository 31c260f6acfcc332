"""Arrays, chunked arrays, record batches and tables, and their construction from Python and NumPy."""
