-- What vehicles contribute by all jobs of a data version.
-- Grain: one row a (cell, slot, vehicle), in this order. Sums of BIGINT are HUGEINT; one that leaves 64 bits is
-- null, never an error: the caller refuses by counts.
SELECT
    cell,
    slot,
    vehicle_id,
    CAST(sum(fixes) AS BIGINT) AS fixes,
    CASE WHEN count(*) = count(total) THEN TRY_CAST(sum(total) AS BIGINT) END AS total,
    CASE WHEN count(*) = count(total_of_squares) THEN TRY_CAST(sum(total_of_squares) AS BIGINT) END
        AS total_of_squares
FROM imported
WHERE cache_key = $cache_key AND ingest_id <= $up_to_ingest
GROUP BY cell, slot, vehicle_id
ORDER BY cell, slot, vehicle_id
