"""The life of memories after they are written: use, consolidation, retention, rollback, re-embedding."""
