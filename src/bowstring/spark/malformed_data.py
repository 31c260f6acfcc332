"""Malformed files and batches that Spark reads: an error, dropped, or a row with the message.

The unit is a record batch, or a whole file or the rest of a stream if its batches can't be separated. That is coarser
than a line of Spark's own text sources, but Arrow's batches are only valid as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bowstring.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
MODES: tuple[Mode, ...] = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")


@dataclass(frozen=True, slots=True)
class MalformedDataPolicy:
    """What a reader does with malformed data, and with files that no longer exist."""

    mode: Mode = "FAILFAST"
    message_column: str = "_corrupt_record"
    """The column of messages in the mode PERMISSIVE."""
    ignores_corrupt_files: bool = False
    """Whether the rest of a malformed file is not read, whatever the mode."""
    ignores_missing_files: bool = False

    @property
    def tolerates_malformed(self) -> bool:
        """Whether malformed data is tolerated."""
        return self.ignores_corrupt_files or self.mode != "FAILFAST"

    @property
    def has_message_rows(self) -> bool:
        """Whether malformed data becomes a row with the message."""
        return self.mode == "PERMISSIVE" and not self.ignores_corrupt_files

    def add_message_column(self, schema: StructType) -> StructType:
        """Return a schema with the column of messages, if any."""
        from pyspark.sql.types import StringType, StructField, StructType

        if self.mode != "PERMISSIVE" or self.message_column in schema.names:
            return schema
        return StructType([*schema.fields, StructField(self.message_column, StringType())])

    def check_message_column(self, schema: StructType) -> None:
        """Raise `InvalidArgumentError` if the column of messages can't have messages."""
        if self.mode == "PERMISSIVE" and self.message_column in schema.names:
            field = schema[self.message_column]
            if field.dataType.simpleString() != "string" or not field.nullable:
                raise InvalidArgumentError(
                    f"column {self.message_column} of columnNameOfCorruptRecord: expected a nullable string, found "
                    f"{field.dataType.simpleString()}"
                )


FAIL_FAST = MalformedDataPolicy()
