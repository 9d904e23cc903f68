"""The Debezium side: publication, topics, connector, preflight, and the Connect REST client."""
