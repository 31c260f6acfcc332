"""Frames over stream sockets: the unix transport, with passed descriptors, and TCP, plain or with TLS."""
