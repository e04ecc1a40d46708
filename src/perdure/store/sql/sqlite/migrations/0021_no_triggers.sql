-- oldest: 21

-- A store file runs no SQL of its own: statements keep the indexes of words now, and a program refuses a file with a trigger.
DROP TRIGGER documents_gone;
DROP TRIGGER pieces_put;
DROP TRIGGER pieces_gone;
