-- Adds what vehicles contribute by one job of a cluster; their numbers are the vault's.
-- Grain: one row a (cell, slot, vehicle). Cells come as signed numbers of the same 64 bits.
INSERT INTO imported (cache_key, ingest_id, cell, slot, vehicle_id, fixes, total, total_of_squares)
SELECT
    $cache_key,
    $ingest_id,
    CAST(incoming.cell AS UBIGINT),
    incoming.slot,
    CAST(incoming.vehicle_id AS INTEGER),
    incoming.fixes,
    incoming.total,
    incoming.total_of_squares
FROM incoming_contributions AS incoming;
