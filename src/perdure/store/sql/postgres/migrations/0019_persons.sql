-- oldest: 17

-- Memories of one user: a question that is asked for one of many looks at theirs alone.
CREATE INDEX memories_of_person ON memories (owner, person) WHERE person <> '';
