-- Appends the counts of one closed step of a stream.
-- Grain: one row a (bin, vehicle) of incoming_counts.
INSERT INTO stream_counts (release_id, step, cell, slot, vehicle_id, records, position)
SELECT
    $release_id,
    $step,
    CAST(incoming.cell AS UBIGINT),
    incoming.slot,
    CAST(incoming.vehicle AS INTEGER),
    incoming.records,
    incoming.position
FROM incoming_counts AS incoming;
