"""libfabric through ctypes («URI Specification», scheme `fabric`)."""
