"""The numbers of messages that were written or read, as `pyarrow.ipc.WriteStats` and `ReadStats`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """Numbers of messages: all of them, the schema included, and those with record batches and with dictionaries.

    >>> table = bs.table({"a": [1, 2]})
    >>> with bs.new_file("a.arrow", table.schema) as writer:
    ...     writer.write_table(table)
    >>> writer.stats
    MessageCounts(num_messages=2, num_record_batches=1, num_dictionary_batches=0)
    """

    num_messages: int
    num_record_batches: int
    num_dictionary_batches: int
