"""Flatbuffers: the tables of Arrow's metadata as bytes and as plain records, without their meaning."""
