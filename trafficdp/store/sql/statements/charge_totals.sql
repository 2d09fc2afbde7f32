-- What charge_totals holds, from the accounts themselves.
-- Grain: one row a charge.
SELECT
    sequence,
    any_value(entry ->> 'analyst') AS analyst,
    count(*) AS vehicles,
    max(loss_pico) AS largest_pico
FROM vehicle_charges JOIN ledger USING (sequence)
GROUP BY sequence
