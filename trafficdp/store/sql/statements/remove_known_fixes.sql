-- Takes the records of the files from $ingest_id on out again whose (vehicle, instant) an earlier file brought.
-- Grain: one row a record that is removed. Only earlier ones from $first_us to $last_us are looked at: those of
-- other days are passed over by the blocks they lie in. Of the new files only those of the time of these are:
-- of a file a day, the few that came late.
DELETE FROM fixes
USING fixes AS old
WHERE fixes.ingest_id >= $ingest_id
    AND fixes.time_us BETWEEN (
        SELECT min(time_us) FROM fixes WHERE ingest_id < $ingest_id AND time_us BETWEEN $first_us AND $last_us
    ) AND (
        SELECT max(time_us) FROM fixes WHERE ingest_id < $ingest_id AND time_us BETWEEN $first_us AND $last_us
    )
    AND old.ingest_id < $ingest_id
    AND old.time_us BETWEEN $first_us AND $last_us
    AND old.vehicle_id = fixes.vehicle_id
    AND old.time_us = fixes.time_us;
