"""UCX: libucp through ctypes («URI Specification», scheme `ucx`)."""

from bowstring_networks.ucx.transport import UCX as UCX, UcxOptions as UcxOptions
