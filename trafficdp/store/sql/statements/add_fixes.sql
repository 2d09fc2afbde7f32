-- Adds the rows of incoming_fixes whose (vehicle, instant) the vault does not hold yet.
-- Grain: one row a new fix. incoming_fixes itself has no (vehicle, instant) twice.
INSERT INTO fixes (
    vehicle_id, time_us, latitude, longitude, speed_centi, speed_unit, derived, ingest_id
)
SELECT
    known.vehicle_id,
    incoming.time_us,
    incoming.latitude,
    incoming.longitude,
    incoming.speed_centi,
    CAST(incoming.speed_unit AS VARCHAR),
    incoming.derived,
    $ingest_id
FROM incoming_fixes AS incoming
JOIN vehicles AS known ON known.hmac = CAST(incoming.vehicle AS BLOB)
ANTI JOIN fixes AS old ON old.vehicle_id = known.vehicle_id AND old.time_us = incoming.time_us;
