"""The domain of driftless (changes, keys, versions, views, sinks, configuration, errors) and the operator's command."""

__version__ = "0.1.0"
