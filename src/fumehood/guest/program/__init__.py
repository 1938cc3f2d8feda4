"""The process of a run once it is isolated: how it becomes the user's program or session, and how that ends."""
