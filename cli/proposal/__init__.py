"""What `init` proposes: names, nested views, and the text of a sync.yaml."""
