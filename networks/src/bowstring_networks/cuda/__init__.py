"""The transport `cuda+unix`: memory of NVIDIA GPUs by IPC handles, messages over a unix socket."""

from bowstring_networks.cuda.driver import pause_frees as pause_frees
from bowstring_networks.cuda.transport import CUDA as CUDA, CudaOptions as CudaOptions
