-- Fixes of a data version and a period, with their speeds clipped to [0, U] and rounded to steps.
-- Grain: one row a fix of `fixes` (store/sql/tables/vault.sql) in the period; none is dropped for its speed.
-- Parameters: $up_to_ingest; $start_us, $end_us (end not included); for each unit of speed, exact
-- integers numerator, cap, and the common denominator and top of the formula in engine/duckdb_reduce.py.
SELECT
    vehicle_id,
    time_us,
    latitude,
    longitude,
    (2 * least(least(greatest(speed_centi, 0), cap) * numerator, top) + denominator) // (2 * denominator) AS value
FROM (
    SELECT
        vehicle_id,
        time_us,
        latitude,
        longitude,
        speed_centi,
        CASE speed_unit
            WHEN 'ms' THEN $numerator_ms::BIGINT
            WHEN 'kmh' THEN $numerator_kmh::BIGINT
            WHEN 'mph' THEN $numerator_mph::BIGINT
            ELSE error('unknown speed unit in fixes')
        END AS numerator,
        CASE speed_unit
            WHEN 'ms' THEN $cap_ms::BIGINT
            WHEN 'kmh' THEN $cap_kmh::BIGINT
            WHEN 'mph' THEN $cap_mph::BIGINT
        END AS cap,
        $denominator::BIGINT AS denominator,
        $top::BIGINT AS top
    FROM fixes
    WHERE ingest_id <= $up_to_ingest AND time_us >= $start_us AND time_us < $end_us
)
