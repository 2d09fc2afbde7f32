-- Fixes of some files and a period, with their speeds as reported (engine/clip.py clips them).
-- Grain: one row a fix of `fixes` (store/sql/tables/vault.sql) in the period; none is dropped for its speed.
-- speed_unit is null where it is none that is known. A number of a vehicle is in one part of $parts.
-- Parameters: $after_ingest, $up_to_ingest (included); $start_us, $end_us (not included); $part, $parts.
SELECT
    vehicle_id,
    time_us,
    latitude,
    longitude,
    speed_centi,
    -- one cast a word: one a row takes as long as all else
    CASE speed_unit
        WHEN 'ms' THEN CAST('ms' AS ENUM ('ms', 'kmh', 'mph'))
        WHEN 'kmh' THEN CAST('kmh' AS ENUM ('ms', 'kmh', 'mph'))
        WHEN 'mph' THEN CAST('mph' AS ENUM ('ms', 'kmh', 'mph'))
    END AS speed_unit
FROM fixes
WHERE ingest_id > $after_ingest AND ingest_id <= $up_to_ingest
    AND time_us >= $start_us AND time_us < $end_us
    AND vehicle_id % $parts = $part
