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
SELECT 'a release twice', count(*)
FROM (SELECT release_id FROM releases GROUP BY ALL HAVING count(*) > 1)
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
SELECT 'a quantile without ranks', count(*)
FROM quantiles
WHERE ($release_id IS NULL OR release_id = $release_id)
  AND ((status = 'withheld') <> (rank_low IS NULL OR rank_high IS NULL) OR rank_low > rank_high)
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
HAVING count(*) > 0;
