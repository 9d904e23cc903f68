"""Alerts without a Prometheus: judged here, and sent to a webhook."""
