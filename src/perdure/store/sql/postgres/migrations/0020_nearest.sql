-- oldest: 17

-- The nearest pieces by pgvector. What is drawn is ranked beside what words have drawn: 64 is enough for fifteen, and takes half the time of 100.
CREATE OR REPLACE FUNCTION near_pieces(whose BIGINT, which TEXT, wanted REAL[], count BIGINT)
RETURNS TABLE (piece BIGINT) LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '64', true);
    RETURN QUERY EXECUTE format(
        'SELECT piece FROM piece_vectors WHERE owner = $1 AND embedder = %1$L '
        'ORDER BY vector::%2$I.vector(%3$s) OPERATOR(%2$I.<#>) $2::%2$I.vector(%3$s) LIMIT $3',
        which, vector_home(), cardinality(wanted)) USING whose, wanted, count;
END
$$;

-- The nearest of all, each of them compared: for filters that leave out so little that what passes is not listed. Adding nothing keeps the index out.
CREATE FUNCTION nearest_of_all(whose BIGINT, which TEXT, wanted REAL[], count BIGINT)
RETURNS TABLE (piece BIGINT) LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT piece FROM piece_vectors WHERE owner = $1 AND embedder = $2 '
        'ORDER BY (vector::%1$I.vector OPERATOR(%1$I.<#>) $3::%1$I.vector) + 0 LIMIT $4', vector_home())
        USING whose, which, wanted, count;
END
$$;
