"""Functions on arrays: cast, sort, filter, encode, nulls. There is no query engine."""
