-- Takes the records of the newest file out again whose (vehicle, instant) an earlier file brought.
-- Grain: one row a record that is removed. Only earlier ones from $first_us to $last_us are looked at: those of
-- other days are passed over by the blocks they lie in.
DELETE FROM fixes
USING fixes AS old
WHERE fixes.ingest_id = $ingest_id
    AND old.ingest_id < $ingest_id
    AND old.time_us BETWEEN $first_us AND $last_us
    AND old.vehicle_id = fixes.vehicle_id
    AND old.time_us = fixes.time_us;
