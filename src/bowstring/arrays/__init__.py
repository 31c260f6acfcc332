"""Record batches, tables and chunked arrays, and their construction from Python and NumPy."""
