"""Kafka Connect and the Debezium connector in it."""
