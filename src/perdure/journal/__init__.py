"""The truth: append-only streams of entries, each chained to the one before; everything else is a view."""
