-- Fixes of a data version and a period, with their speeds as reported (engine/clip.py clips them).
-- Grain: one row a fix of `fixes` (store/sql/tables/vault.sql) in the period; none is dropped for its speed.
-- Parameters: $up_to_ingest; $start_us, $end_us (end not included).
SELECT vehicle_id, time_us, latitude, longitude, speed_centi, speed_unit
FROM fixes
WHERE ingest_id <= $up_to_ingest AND time_us >= $start_us AND time_us < $end_us
