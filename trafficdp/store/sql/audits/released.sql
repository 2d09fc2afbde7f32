-- Audits of the released database: every query selects bad rows and must return none.
-- Grain: one row a problem.
-- Parameter: $release_id, the one release that is looked at; null for all.
WITH audited AS (
    FROM cells WHERE $release_id IS NULL OR release_id = $release_id
)
SELECT 'a bin twice in a release' AS problem, count(*) AS found
FROM (SELECT release_id, publication, cell, slot FROM audited GROUP BY ALL HAVING count(*) > 1)
HAVING count(*) > 0
UNION ALL
SELECT 'cells of an unknown or withdrawn release', count(*)
FROM audited ANTI JOIN (SELECT release_id FROM releases WHERE status = 'published') USING (release_id)
HAVING count(*) > 0
UNION ALL
SELECT 'a quantile of an unknown bin', count(*)
FROM quantiles ANTI JOIN cells USING (release_id, cell, slot)
WHERE $release_id IS NULL OR quantiles.release_id = $release_id
HAVING count(*) > 0
UNION ALL
SELECT 'a quantile without ranks, or a withheld one with a number', count(*)
FROM quantiles
WHERE ($release_id IS NULL OR release_id = $release_id)
  AND ((speed IS NULL) <> (status = 'withheld') OR (speed IS NULL) <> (coalesce(rank_low, rank_high) IS NULL)
    OR rank_low > rank_high)
HAVING count(*) > 0
UNION ALL
SELECT 'cells of an unknown publication', count(*)
FROM audited ANTI JOIN publications
    ON audited.release_id = publications.release_id AND audited.publication = publications.number
WHERE audited.publication IS NOT NULL
HAVING count(*) > 0
UNION ALL
SELECT 'a publication twice or out of order', count(*)
FROM (
    SELECT number, row_number() OVER (PARTITION BY release_id ORDER BY as_of, number) AS place FROM publications
)
WHERE number <> place
HAVING count(*) > 0
UNION ALL
SELECT 'a withheld bin with a number', count(*)
FROM audited
WHERE status = 'withheld'
  AND coalesce(speed_mean, speed_variance, speed_vehicle_mean) IS NOT NULL
HAVING count(*) > 0
UNION ALL
SELECT 'a number outside its interval', count(*)
FROM audited
WHERE NOT coalesce(speed_mean BETWEEN speed_mean_low AND speed_mean_high, true)
   OR NOT coalesce(speed_variance BETWEEN speed_variance_low AND speed_variance_high, true)
   OR NOT coalesce(speed_vehicle_mean BETWEEN speed_vehicle_mean_low AND speed_vehicle_mean_high, true)
HAVING count(*) > 0
UNION ALL
SELECT 'a number without an interval', count(*)
FROM audited
WHERE (speed_mean IS NOT NULL AND (speed_mean_low IS NULL OR speed_mean_high IS NULL))
   OR (speed_variance IS NOT NULL AND (speed_variance_low IS NULL OR speed_variance_high IS NULL))
   OR (speed_vehicle_mean IS NOT NULL AND (speed_vehicle_mean_low IS NULL OR speed_vehicle_mean_high IS NULL))
HAVING count(*) > 0;
