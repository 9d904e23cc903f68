"""The PySpark jobs: read the log, shape documents, write them to sinks."""
