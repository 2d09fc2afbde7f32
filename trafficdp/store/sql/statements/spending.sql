-- What spending holds, from the accounts themselves.
-- Grain: one row a vehicle over all charges, and one a (who asked, vehicle).
SELECT CAST(NULL AS VARCHAR) AS analyst, vehicle_id, CAST(sum(loss_pico) AS BIGINT) AS loss_pico
FROM vehicle_charges
GROUP BY vehicle_id
UNION ALL
SELECT analyst, vehicle_id, CAST(sum(loss_pico) AS BIGINT)
FROM vehicle_charges JOIN (SELECT sequence, entry ->> 'analyst' AS analyst FROM ledger) USING (sequence)
WHERE analyst IS NOT NULL
GROUP BY analyst, vehicle_id
