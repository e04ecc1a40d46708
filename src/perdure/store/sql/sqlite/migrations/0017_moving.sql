-- The entry of an agent's stream that says that it has left this store; 0 while it is at home here.
ALTER TABLE agents ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;
