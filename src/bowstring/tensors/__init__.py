"""Tensors («Tensor (Multi-dimensional Array) Message Format», «SparseTensor Message Format»)."""

from typing import TYPE_CHECKING

from bowstring._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bowstring.tensors.csf import SparseCSFTensor as SparseCSFTensor
    from bowstring.tensors.dense import Tensor as Tensor
    from bowstring.tensors.reader_writer import (
        TensorReader as TensorReader,
        TensorWriter as TensorWriter,
        get_tensor_size as get_tensor_size,
        new_tensors as new_tensors,
        open_tensors as open_tensors,
        read_tensor as read_tensor,
        write_tensor as write_tensor,
    )
    from bowstring.tensors.sparse import (
        SparseCOOTensor as SparseCOOTensor,
        SparseCSCMatrix as SparseCSCMatrix,
        SparseCSRMatrix as SparseCSRMatrix,
    )
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "csf": ("SparseCSFTensor",),
            "dense": ("Tensor",),
            "reader_writer": (
                "TensorReader",
                "TensorWriter",
                "get_tensor_size",
                "new_tensors",
                "open_tensors",
                "read_tensor",
                "write_tensor",
            ),
            "sparse": ("SparseCOOTensor", "SparseCSCMatrix", "SparseCSRMatrix"),
        },
    )
