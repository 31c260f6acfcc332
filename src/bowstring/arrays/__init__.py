"""Record batches and tables: ordered collections of arrays with a schema, and how to make them."""
