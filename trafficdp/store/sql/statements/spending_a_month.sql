-- What spending_a_month holds, from the accounts themselves; charge_months says when each charge was made.
-- Grain: one row a (month, vehicle).
SELECT
    time_zone,
    month,
    vehicle_id,
    CAST(sum(loss_pico) AS BIGINT) AS loss_pico,
    count(*) AS charges,
    max(at_us) AS newest_us
FROM vehicle_charges JOIN charge_months USING (sequence)
GROUP BY time_zone, month, vehicle_id
