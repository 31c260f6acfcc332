"""The option --input of the demo: a Parquet, CSV, JSON or Arrow path, read by Spark."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from bowstring.errors import InvalidArgumentError, MissingFileError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_JSON_LINES_EXTENSIONS = {".jsonl", ".ndjson"}


def infer_input_format(path: str) -> str:
    """Return Spark's format for a local or remote file or folder, by extension.

    Raises `MissingFileError` if a local path does not exist, `InvalidArgumentError` for an unknown extension.
    """
    if "://" not in path and not os.path.exists(path):
        raise MissingFileError(f"{path}: there is no such file or folder", filename=str(path))
    names = [path]
    if os.path.isdir(path):
        names += sorted(name for name in os.listdir(path) if not name.startswith(("_", ".")))
    for name in names:
        for ending in (os.path.splitext(name)[1], os.path.splitext(os.path.splitext(name)[0])[1]):
            if ending.lower() in SPARK_FORMATS:
                return SPARK_FORMATS[ending.lower()]
    raise InvalidArgumentError(
        f"{path}: expected a name that ends in {', '.join(SPARK_FORMATS)}, or a folder of such files"
    )


def read_dataframe(spark: SparkSession, path: str) -> DataFrame:
    """Read a local or remote path with Spark. Raises the errors of `infer_input_format`."""
    format_ = infer_input_format(path)
    reader = spark.read
    if format_ == "csv":
        reader = reader.options(header=True, inferSchema=True, quote='"', escape='"', multiLine=True)
    if format_ == "json":
        reader = reader.option("multiLine", not _is_json_lines(path))
    return reader.format(format_).load(path)


def _is_json_lines(path: str) -> bool:
    """Return whether a JSON file contains one document per line, judged by its name or its first two lines."""
    if not os.path.isfile(path) or not _JSON_LINES_EXTENSIONS.isdisjoint(Path(path.lower()).suffixes):
        return True
    with gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb") as file:
        first = file.readline(1 << 20).strip()
        rest = file.readline(1 << 20).strip()
    try:
        return isinstance(json.loads(first), dict) and (not rest or rest.startswith(b"{"))
    except ValueError:
        return False
