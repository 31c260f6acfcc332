"""What data means: data types, fields, schemas and extension types («Data Types»)."""
