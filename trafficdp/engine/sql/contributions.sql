-- What each vehicle contributes to each bin, in exact integers.
-- Grain: one row a (cell, slot, vehicle) with at least one fix, in this order.
-- Reads `binned`: one row a fix, (cell UBIGINT, slot BIGINT, vehicle_id INTEGER, time_us BIGINT, value BIGINT).
-- Sums of BIGINT are HUGEINT and cannot overflow; the casts fail if a sum does not fit 64 bits.
SELECT
    cell,
    slot,
    vehicle_id,
    count(*) AS fixes,
    sum(value)::BIGINT AS total,
    sum(value * value)::BIGINT AS total_of_squares
FROM binned
GROUP BY cell, slot, vehicle_id
ORDER BY cell, slot, vehicle_id
