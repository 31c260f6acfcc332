"""Flatbuffers: Arrow's metadata as bytes and as plain records, without Arrow's meaning."""
