"""The transport `cuda+unix`: memory of NVIDIA GPUs by IPC handles, messages over a unix socket."""
