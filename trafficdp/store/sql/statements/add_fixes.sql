-- Adds the rows of incoming_fixes, whose vehicles and files have numbers.
-- Grain: one row a fix. No (vehicle, instant) is there twice; those of earlier files are removed afterwards.
INSERT INTO fixes (
    vehicle_id, time_us, latitude, longitude, speed_centi, speed_unit, derived, ingest_id
)
SELECT
    CAST(incoming.vehicle_id AS INTEGER),
    incoming.time_us,
    incoming.latitude,
    incoming.longitude,
    incoming.speed_centi,
    CAST(incoming.speed_unit AS VARCHAR),
    incoming.derived,
    CAST(incoming.ingest_id AS INTEGER)
FROM incoming_fixes AS incoming;
