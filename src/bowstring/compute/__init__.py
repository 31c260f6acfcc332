"""The everyday verbs on arrays, vectorised, a module for each family of them. No query engine."""
