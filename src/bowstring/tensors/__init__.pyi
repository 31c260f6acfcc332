from bowstring.tensors.csf import SparseCSFTensor as SparseCSFTensor
from bowstring.tensors.dense import Tensor as Tensor
from bowstring.tensors.reader_writer import (
    TensorReader as TensorReader,
    TensorWriter as TensorWriter,
    get_tensor_size as get_tensor_size,
    new_tensor_stream as new_tensor_stream,
    open_tensor_stream as open_tensor_stream,
    read_tensor as read_tensor,
    write_tensor as write_tensor,
)
from bowstring.tensors.sparse import (
    SparseCOOTensor as SparseCOOTensor,
    SparseCSCMatrix as SparseCSCMatrix,
    SparseCSRMatrix as SparseCSRMatrix,
)
