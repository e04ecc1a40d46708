-- What memories are found by: each is one piece, a long one several. Terms are what `memory/terms.py` makes of its words; thread
-- and place are those of the memory; asks are thousandths, day counts from the year 1, told are the days that it tells of.
-- Not a view: written by the commit of the memory, made again from it by `agent.memory.reembed()`.
CREATE TABLE pieces (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    owner  INTEGER NOT NULL,
    memory TEXT NOT NULL,
    part   INTEGER NOT NULL,
    thread TEXT NOT NULL,
    place  INTEGER NOT NULL,
    length INTEGER NOT NULL,
    asks   INTEGER NOT NULL,
    day    INTEGER NOT NULL,
    told   BLOB NOT NULL,
    terms  TEXT NOT NULL,
    UNIQUE (owner, memory, part)
) STRICT;

-- What was said before and after.
CREATE INDEX pieces_together ON pieces (owner, thread, place);

-- What was said on a day.
CREATE INDEX pieces_of_day ON pieces (owner, day);

-- The pieces that have a term. Each has its owner before it, so that what is rare is rare for its agent.
CREATE VIRTUAL TABLE piece_words USING fts5 (words, content = '', tokenize = 'ascii');

-- A word of a piece that is erased leaves nothing behind.
INSERT INTO piece_words (piece_words, rank) VALUES ('secure-delete', 1);

-- How many pieces have a term.
CREATE VIRTUAL TABLE piece_terms USING fts5vocab (piece_words, row);

-- What a model has made of a piece: floats of four bytes each, of length 1 together. Never compared with another model's.
CREATE TABLE piece_vectors (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    piece    INTEGER NOT NULL,
    owner    INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL,
    UNIQUE (piece, embedder)
) STRICT;

-- What has come since somebody has last looked.
CREATE INDEX piece_vectors_since ON piece_vectors (owner, embedder, number);

-- The words of a piece come and go with it.
CREATE TRIGGER pieces_put AFTER INSERT ON pieces WHEN new.terms <> '' BEGIN
    INSERT INTO piece_words (rowid, words)
    VALUES (new.id, 'k' || new.owner || 'x' || replace(new.terms, ' ', ' k' || new.owner || 'x'));
END;

CREATE TRIGGER pieces_gone AFTER DELETE ON pieces BEGIN
    DELETE FROM piece_vectors WHERE piece = old.id;
    INSERT INTO piece_words (piece_words, rowid, words)
    SELECT 'delete', old.id, 'k' || old.owner || 'x' || replace(old.terms, ' ', ' k' || old.owner || 'x')
    WHERE old.terms <> '';
END;
