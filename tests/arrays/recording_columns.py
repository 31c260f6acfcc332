"""Columns of a record batch that record which of them are accessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bowstring as bs


class RecordingColumns(Sequence[bs.Array]):
    """Columns, and the index of each access in order."""

    def __init__(self, columns: Sequence[bs.Array]) -> None:
        self.columns = columns
        self.indices: list[int] = []

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, index: Any) -> Any:
        self.indices.append(index)
        return self.columns[index]
