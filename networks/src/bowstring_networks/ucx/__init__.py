"""UCX: libucp through ctypes («URI Specification», scheme `ucx`)."""
