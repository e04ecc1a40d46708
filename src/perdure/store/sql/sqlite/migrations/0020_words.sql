-- The words of documents, now with what they were made of: only so a word that goes leaves nothing behind in the index, which
-- kept it until then. Those that there are are read back from the index.
CREATE VIRTUAL TABLE temp.old_terms USING fts5vocab (main, document_words, instance);
CREATE TEMP TABLE old_words AS
    SELECT doc, group_concat(term, ' ' ORDER BY offset) AS words FROM temp.old_terms GROUP BY doc;
DROP TABLE temp.old_terms;
DROP TABLE document_words;
CREATE VIRTUAL TABLE document_words USING fts5 (words, tokenize = 'ascii');
INSERT INTO document_words (document_words, rank) VALUES ('secure-delete', 1);
INSERT INTO document_words (rowid, words) SELECT doc, words FROM temp.old_words WHERE doc IN (SELECT id FROM documents);
DROP TABLE temp.old_words;
