"""``format("arrow")``: the data source, its readers and writers, and the files that it reads."""
