"""The metadata of messages: schemas and headers as flatbuffers."""
