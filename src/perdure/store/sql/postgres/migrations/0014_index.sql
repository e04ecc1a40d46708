-- oldest: 14

-- When a key was set that has been there ever since (0: by its last change), and for how long reading keeps it.
ALTER TABLE entries ADD COLUMN created BIGINT NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN lasts BIGINT NOT NULL DEFAULT 0;

-- Texts that can be searched, by what they belong to: kind 'state' is a key of an agent's state in its version, part is where
-- in the value the text was. A vector is floats of four bytes each, made by the embedder that is named; empty without one.
-- Not a view: a vector can only be made again by its model. Written by the commit that writes what it belongs to. Arrival is
-- the number of its transaction: who has read up to the oldest one that is open has missed nothing.
CREATE TABLE documents (
    id       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner    BIGINT NOT NULL,
    kind     TEXT COLLATE "C" NOT NULL,
    space    TEXT COLLATE "C" NOT NULL,
    key      TEXT COLLATE "C" NOT NULL,
    part     TEXT COLLATE "C" NOT NULL,
    version  BIGINT NOT NULL,
    text     BYTEA NOT NULL,
    embedder TEXT COLLATE "C" NOT NULL,
    vector   BYTEA NOT NULL,
    arrival  BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    UNIQUE (owner, kind, space, key, part)
);

-- What has come since somebody has last looked.
CREATE INDEX documents_by_arrival ON documents (owner, kind, arrival);

-- Their words, as `words.py` cuts them.
CREATE TABLE document_words (
    document BIGINT PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    words    TSVECTOR NOT NULL
);

-- The documents that have a word.
CREATE INDEX documents_of_word ON document_words USING gin (words);
