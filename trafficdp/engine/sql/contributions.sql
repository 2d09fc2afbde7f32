-- What each vehicle contributes to each bin, in exact integers.
-- Grain: one row a (cell, slot, vehicle) with at least one fix, in this order.
-- Reads `binned`: one row a fix, (cell UBIGINT, slot BIGINT, vehicle_id INTEGER, time_us BIGINT, value BIGINT).
-- Sums of BIGINT are HUGEINT and cannot overflow. What does not fit 64 bits is the largest number that does,
-- never an error: whether it fits follows from records.
SELECT
    cell,
    slot,
    vehicle_id,
    count(*) AS fixes,
    CAST(least(sum(value), 9223372036854775807) AS BIGINT) AS total,
    CAST(least(sum(value * value), 9223372036854775807) AS BIGINT) AS total_of_squares
FROM binned
GROUP BY cell, slot, vehicle_id
ORDER BY cell, slot, vehicle_id
