-- When a key was set that has been there ever since (0: by its last change), and for how long reading keeps it.
ALTER TABLE entries ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN lasts INTEGER NOT NULL DEFAULT 0;

-- Texts that can be searched, by what they belong to: kind 'state' is a key of an agent's state in its version, part is where
-- in the value the text was. A vector is floats of four bytes each, made by the embedder that is named; empty without one.
-- Not a view: a vector can only be made again by its model. Written by the commit that writes what it belongs to.
CREATE TABLE documents (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    owner    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    space    TEXT NOT NULL,
    key      TEXT NOT NULL,
    part     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    text     BLOB NOT NULL,
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL,
    UNIQUE (owner, kind, space, key, part)
) STRICT;

-- Their words, as `words.py` cuts them: spaces are between them, and nothing else is left to be cut.
CREATE VIRTUAL TABLE document_words USING fts5 (
    words, content = '', contentless_delete = 1, tokenize = 'ascii'
);

-- The words of a document go with it.
CREATE TRIGGER documents_gone AFTER DELETE ON documents BEGIN
    DELETE FROM document_words WHERE rowid = old.id;
END;
