"""libfabric through ctypes («URI Specification», scheme `fabric`)."""

from bowstring_networks.fabric.transport import FABRIC as FABRIC, FabricOptions as FabricOptions
