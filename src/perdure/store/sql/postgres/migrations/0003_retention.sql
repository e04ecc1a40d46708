-- oldest: 2

-- Keys that will run out, in the order in which they do: the sweeper looks at no others.
CREATE INDEX entries_expiring ON entries (owner, expires) WHERE expires > 0;
