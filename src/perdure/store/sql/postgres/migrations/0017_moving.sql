-- oldest: 17

-- The entry of an agent's stream that says that it has left this store; 0 while it is at home here.
ALTER TABLE agents ADD COLUMN gone BIGINT NOT NULL DEFAULT 0;
