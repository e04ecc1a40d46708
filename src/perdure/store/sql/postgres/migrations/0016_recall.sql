-- oldest: 16

-- What memories are found by: each is one piece, a long one several. Terms are what `memory/terms.py` makes of its words; thread
-- and place are those of the memory; asks are thousandths, day counts from the year 1, told are the days that it tells of.
-- Words are the terms, each with its owner before it, so that what is rare is rare for its agent.
-- Not a view: written by the commit of the memory, made again from it by `agent.memory.reembed()`.
CREATE TABLE pieces (
    id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner  BIGINT NOT NULL,
    memory TEXT COLLATE "C" NOT NULL,
    part   BIGINT NOT NULL,
    thread TEXT COLLATE "C" NOT NULL,
    place  BIGINT NOT NULL,
    length BIGINT NOT NULL,
    asks   BIGINT NOT NULL,
    day    BIGINT NOT NULL,
    told   BYTEA NOT NULL,
    terms  TEXT NOT NULL,
    words  TSVECTOR NOT NULL GENERATED ALWAYS AS (CASE WHEN terms = '' THEN ''::tsvector ELSE array_to_tsvector(
        string_to_array('k' || owner || 'x' || replace(terms, ' ', ' k' || owner || 'x'), ' ')) END) STORED,
    UNIQUE (owner, memory, part)
);

-- What was said before and after.
CREATE INDEX pieces_together ON pieces (owner, thread, place);

-- What was said on a day.
CREATE INDEX pieces_of_day ON pieces (owner, day);

-- The pieces that have a term.
CREATE INDEX piece_words ON pieces USING gin (words) WITH (fastupdate = off);

-- What a model has made of a piece: numbers of length 1 together. Never compared with another model's. Arrival is the number of
-- its transaction: who has read up to the oldest one that is open has missed nothing.
CREATE TABLE piece_vectors (
    number   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    piece    BIGINT NOT NULL REFERENCES pieces (id) ON DELETE CASCADE,
    owner    BIGINT NOT NULL,
    embedder TEXT COLLATE "C" NOT NULL,
    vector   REAL[] NOT NULL,
    arrival  BIGINT NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    UNIQUE (piece, embedder)
);

-- What has come since somebody has last looked.
CREATE INDEX piece_vectors_since ON piece_vectors (owner, embedder, arrival);

-- Where the types of pgvector are, and nothing where it is not installed: then vectors are compared by the program.
CREATE FUNCTION vector_home() RETURNS TEXT LANGUAGE sql STABLE AS $$
    SELECT (SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector')::text
$$;

-- The nearest pieces by pgvector. The size is part of the type, and so of the text; the index of an embedder has the same.
CREATE FUNCTION near_pieces(whose BIGINT, which TEXT, wanted REAL[], count BIGINT)
RETURNS TABLE (piece BIGINT) LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '100', true);
    RETURN QUERY EXECUTE format(
        'SELECT piece FROM piece_vectors WHERE owner = $1 AND embedder = %1$L '
        'ORDER BY vector::%2$I.vector(%3$s) OPERATOR(%2$I.<#>) $2::%2$I.vector(%3$s) LIMIT $3',
        which, vector_home(), cardinality(wanted)) USING whose, wanted, count;
END
$$;

-- How near some pieces are, by pgvector.
CREATE FUNCTION nearness(which TEXT, wanted REAL[], among BIGINT[])
RETURNS TABLE (piece BIGINT, near REAL) LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT piece, (-(vector::%1$I.vector OPERATOR(%1$I.<#>) $1::%1$I.vector))::real FROM piece_vectors '
        'WHERE embedder = $2 AND piece = ANY ($3)', vector_home()) USING wanted, which, among;
END
$$;

-- Has an embedder's vectors found by an index, if pgvector is there and the role owns the table; says whether it is.
CREATE FUNCTION index_vectors(which TEXT, dims BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    named TEXT := 'piece_vectors_' || md5(which || dims);
BEGIN
    IF vector_home() IS NULL OR dims > 2000 THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS %1$I ON piece_vectors USING hnsw ((vector::%2$I.vector(%3$s)) %2$I.vector_ip_ops) '
        'WHERE embedder = %4$L', named, vector_home(), dims, which);
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN EXISTS (SELECT 1 FROM pg_class WHERE relname = named);
END
$$;

-- pgvector is taken where it can be had, and is not needed. The two models that come with Perdure have their indexes at once.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;
EXCEPTION WHEN OTHERS THEN
    NULL;
END
$$;

SELECT index_vectors('perdure-static-minilm-192-1', 192), index_vectors('all-minilm-l6-v2-int8', 384);
