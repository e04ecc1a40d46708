-- oldest: 17

-- What counts about something, to be compared with what is new: however much was replaced, and whosever else it is.
CREATE INDEX memories_counting ON memories (owner, about, person, kind, valid_from) WHERE about <> '' AND ended = 0;

-- What says the same.
DROP INDEX memories_alike;
CREATE INDEX memories_alike ON memories (owner, sketch, about, person, recorded) WHERE ended = 0;
