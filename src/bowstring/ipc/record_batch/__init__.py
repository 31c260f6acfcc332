"""Record batch bodies: reading and writing their buffers («RecordBatch message»)."""
