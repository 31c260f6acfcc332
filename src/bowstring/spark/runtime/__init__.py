"""Java, the Python workers, and jobs of Spark."""
