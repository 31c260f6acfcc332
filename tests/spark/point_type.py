"""A user-defined type of Spark that no other library knows, and that no reader of a file may import."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types as sql


class PointType(sql.UserDefinedType):
    """Points as lists of coordinates."""

    @classmethod
    def sqlType(cls) -> Any:  # noqa: N802 -- Spark's own
        return sql.ArrayType(sql.DoubleType(), False)

    @classmethod
    def module(cls) -> str:
        return __name__

    def serialize(self, obj: Any) -> Any:
        return obj
