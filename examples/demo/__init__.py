"""A program on Bowstring: compute in Spark, and compare three methods to pass the rows to other processes."""
