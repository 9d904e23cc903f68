"""Events that come late: where they are told of, and what they change of what was final."""
