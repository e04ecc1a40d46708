"""`perdure serve`: everything in a store, for any process in any language, with a key."""
