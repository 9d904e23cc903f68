"""From a record's bytes to documents and rows: each type said once, as Spark SQL and for Arrow."""
