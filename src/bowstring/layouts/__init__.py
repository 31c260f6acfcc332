"""Array data, and one module per layout of the columnar format («Physical Memory Layout»)."""
