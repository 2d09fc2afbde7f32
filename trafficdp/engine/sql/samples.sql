-- Every fix with its bin, for mechanisms that need more than sums.
-- Grain: one row a fix, ordered by cell, slot, vehicle and time; a vehicle has one fix an instant.
-- Reads `binned`: one row a fix, (cell UBIGINT, slot BIGINT, vehicle_id INTEGER, time_us BIGINT, value BIGINT).
SELECT
    cell,
    slot,
    vehicle_id,
    value
FROM binned
ORDER BY cell, slot, vehicle_id, time_us
