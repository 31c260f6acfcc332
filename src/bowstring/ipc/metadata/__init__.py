"""What messages say: schemas and headers, as flatbuffers."""
