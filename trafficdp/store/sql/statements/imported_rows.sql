-- What vehicles contribute by all jobs of a data version.
-- Grain: one row a (cell, slot, vehicle), in this order. Sums of BIGINT are HUGEINT; one that leaves 64 bits is
-- the largest number that does not, never an error: whether it does follows from records.
SELECT
    cell,
    slot,
    vehicle_id,
    CAST(sum(fixes) AS BIGINT) AS fixes,
    CAST(least(sum(total), 9223372036854775807) AS BIGINT) AS total,
    CAST(least(sum(total_of_squares), 9223372036854775807) AS BIGINT) AS total_of_squares
FROM imported
WHERE cache_key = $cache_key AND ingest_id <= $up_to_ingest
GROUP BY cell, slot, vehicle_id
ORDER BY cell, slot, vehicle_id
