-- Appends the counts of one closed step of a stream.
-- Grain: one row a (bin, vehicle) of incoming_counts.
INSERT INTO stream_counts (release_id, step, cell, slot, vehicle_id, fixes, position)
SELECT
    $release_id,
    $step,
    CAST(incoming.cell AS UBIGINT),
    incoming.slot,
    CAST(incoming.vehicle AS INTEGER),
    incoming.fixes,
    incoming.position
FROM incoming_counts AS incoming;
