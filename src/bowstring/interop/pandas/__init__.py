"""Conversion between arrays, tables and pandas' series and frames, without pyarrow."""
