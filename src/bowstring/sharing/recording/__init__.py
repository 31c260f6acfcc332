"""Recordings of the messages of servers and clients: how they are written, read and decoded."""
