"""The one door to Kafka outside Spark."""
