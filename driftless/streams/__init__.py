"""What streams are made of: the types of events, and patterns of them."""
