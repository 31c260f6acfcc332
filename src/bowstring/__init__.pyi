from bowstring import (
    compute as compute,
    datasets as datasets,
    datatypes as datatypes,
    errors as errors,
    feather as feather,
    inspection as inspection,
    ipc as ipc,
    memory as memory,
    sharing as sharing,
    spark as spark,
    tensors as tensors,
    types as types,
)
from bowstring.arrays.array import Array as Array, concat_arrays as concat_arrays
from bowstring.arrays.chunked_array import ChunkedArray as ChunkedArray
from bowstring.arrays.construction import (
    array as array,
    chunked_array as chunked_array,
    from_dlpack as from_dlpack,
    from_numpy_dtype as from_numpy_dtype,
    infer_type as infer_type,
    nulls as nulls,
    repeat as repeat,
    scalar as scalar,
)
from bowstring.arrays.nested_arrays import (
    DictionaryArray as DictionaryArray,
    ExtensionArray as ExtensionArray,
    FixedSizeListArray as FixedSizeListArray,
    LargeListArray as LargeListArray,
    LargeListViewArray as LargeListViewArray,
    ListArray as ListArray,
    ListViewArray as ListViewArray,
    MapArray as MapArray,
    RunEndEncodedArray as RunEndEncodedArray,
    StructArray as StructArray,
    UnionArray as UnionArray,
)
from bowstring.arrays.record_batch import RecordBatch as RecordBatch, record_batch as record_batch
from bowstring.arrays.scalar import Scalar as Scalar
from bowstring.arrays.table import (
    RecordBatchReader as RecordBatchReader,
    Table as Table,
    TableGroupBy as TableGroupBy,
    concat_batches as concat_batches,
    concat_tables as concat_tables,
    table as table,
)
from bowstring.datasets.files import read_table as read_table
from bowstring.datasets.publication import publish as publish
from bowstring.datasets.published_dataset import (
    open_published as open_published,
    published as published,
    unpublish as unpublish,
)
from bowstring.datasets.published_query import follow_published as follow_published
from bowstring.datasets.sources import dataset as dataset
from bowstring.datatypes.canonical.json import json_ as json_
from bowstring.datatypes.canonical.uuid import uuid as uuid
from bowstring.datatypes.conversion import field as field
from bowstring.datatypes.factories import (
    binary as binary,
    binary_view as binary_view,
    bool_ as bool_,
    date32 as date32,
    date64 as date64,
    day_time_interval as day_time_interval,
    decimal32 as decimal32,
    decimal64 as decimal64,
    decimal128 as decimal128,
    decimal256 as decimal256,
    dense_union as dense_union,
    dictionary as dictionary,
    duration as duration,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    large_binary as large_binary,
    large_list as large_list,
    large_list_view as large_list_view,
    large_string as large_string,
    large_utf8 as large_utf8,
    list_ as list_,
    list_view as list_view,
    map_ as map_,
    month_day_nano_interval as month_day_nano_interval,
    month_interval as month_interval,
    null as null,
    run_end_encoded as run_end_encoded,
    sparse_union as sparse_union,
    string as string,
    string_view as string_view,
    struct as struct,
    time32 as time32,
    time64 as time64,
    timestamp as timestamp,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    union as union,
    utf8 as utf8,
)
from bowstring.datatypes.field import DataType as DataType, Field as Field
from bowstring.datatypes.schema import Schema as Schema, schema as schema, unify_schemas as unify_schemas
from bowstring.errors import BowstringError as BowstringError
from bowstring.file_formats import write_table as write_table
from bowstring.ipc.api import (
    new_file as new_file,
    new_stream as new_stream,
    open_file as open_file,
    open_stream as open_stream,
)
from bowstring.sharing.client.connect import connect as connect
from bowstring.sharing.server.server import serve as serve
from bowstring.sharing.share import attach as attach, share as share

__version__: str
