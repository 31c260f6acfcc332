"""pandas: series and frames out of arrays and tables, and back, without pyarrow."""
