-- Audits of the speeds of one unit in the released database: every query selects bad rows and must return none.
-- Grain: one row a problem. Written for km/h, as tables/speeds.sql is.
-- Parameter: $release_id, the one release that is looked at; null for all.
WITH audited AS (
    FROM cells WHERE $release_id IS NULL OR release_id = $release_id
)
SELECT 'a withheld bin with a number' AS problem, count(*) AS found
FROM audited
WHERE status = 'withheld'
  AND coalesce(speed_mean_kmh, speed_variance_kmh2, speed_vehicle_mean_kmh) IS NOT NULL
HAVING count(*) > 0
UNION ALL
SELECT 'a number outside its interval', count(*)
FROM audited
WHERE NOT coalesce(speed_mean_kmh BETWEEN speed_mean_kmh_low AND speed_mean_kmh_high, true)
   OR NOT coalesce(speed_variance_kmh2 BETWEEN speed_variance_kmh2_low AND speed_variance_kmh2_high, true)
   OR NOT coalesce(speed_vehicle_mean_kmh BETWEEN speed_vehicle_mean_kmh_low AND speed_vehicle_mean_kmh_high, true)
HAVING count(*) > 0
UNION ALL
SELECT 'a number without an interval', count(*)
FROM audited
WHERE (speed_mean_kmh IS NOT NULL AND (speed_mean_kmh_low IS NULL OR speed_mean_kmh_high IS NULL))
   OR (speed_variance_kmh2 IS NOT NULL AND (speed_variance_kmh2_low IS NULL OR speed_variance_kmh2_high IS NULL))
   OR (
       speed_vehicle_mean_kmh IS NOT NULL
       AND (speed_vehicle_mean_kmh_low IS NULL OR speed_vehicle_mean_kmh_high IS NULL)
   )
HAVING count(*) > 0
UNION ALL
SELECT 'a speed in a unit that its release is not in', count(*)
FROM audited JOIN releases USING (release_id)
WHERE releases.speed_unit <> 'kmh'
  AND coalesce(speed_mean_kmh, speed_variance_kmh2, speed_vehicle_mean_kmh) IS NOT NULL
HAVING count(*) > 0
UNION ALL
SELECT 'a withheld quantile with a number, or another one without', count(*)
FROM quantiles JOIN releases USING (release_id)
WHERE ($release_id IS NULL OR release_id = $release_id)
  AND (speed_kmh IS NOT NULL) <> (quantiles.status <> 'withheld' AND releases.speed_unit = 'kmh')
HAVING count(*) > 0;
