"""Followers: their generations, each applied from its log into its store."""
