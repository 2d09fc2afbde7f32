-- Audits of the vault: every query selects bad rows and must return none.
-- Grain: one row a problem.
-- Parameters: only fixes of files after $after_ingest are looked at, and for (vehicle, instant) twice those of
-- the time $first_us to $last_us. All other tables are looked at whole.
SELECT 'a (vehicle, instant) twice' AS problem, count(*) AS found
FROM (
    SELECT vehicle_id, time_us FROM fixes
    WHERE time_us BETWEEN $first_us AND $last_us
    GROUP BY ALL HAVING count(*) > 1
)
HAVING count(*) > 0
UNION ALL
SELECT 'a record of an unknown vehicle', count(*)
FROM fixes ANTI JOIN vehicles USING (vehicle_id)
WHERE ingest_id > $after_ingest
HAVING count(*) > 0
UNION ALL
SELECT 'a record of an unknown file', count(*)
FROM fixes ANTI JOIN ingests USING (ingest_id)
WHERE ingest_id > $after_ingest
HAVING count(*) > 0
UNION ALL
SELECT 'a record off the globe or with an unknown unit', count(*)
FROM fixes
WHERE ingest_id > $after_ingest
    AND (NOT (latitude BETWEEN -90 AND 90 AND longitude BETWEEN -180 AND 180)
         OR speed_unit NOT IN ('ms', 'kmh', 'mph'))
HAVING count(*) > 0
UNION ALL
SELECT 'contributions of an unknown vehicle or job', count(*)
FROM imported LEFT JOIN vehicles USING (vehicle_id) LEFT JOIN imports USING (ingest_id, cache_key)
WHERE imports.job IS NULL OR vehicles.hmac IS NULL
HAVING count(*) > 0
UNION ALL
SELECT 'contributions of a vehicle to a hexagon twice in a job, or of no record', count(*)
FROM (SELECT min(fixes) AS fewest, count(*) AS rows FROM imported GROUP BY ingest_id, cell, slot, vehicle_id)
WHERE rows > 1 OR fewest < 1
HAVING count(*) > 0
UNION ALL
SELECT 'records beside imported contributions', count(*)
FROM imports WHERE EXISTS (FROM fixes)
HAVING count(*) > 0
UNION ALL
SELECT 'a gap in the numbers of files', count(*)
FROM (SELECT ingest_id, row_number() OVER (ORDER BY ingest_id) AS place FROM ingests)
WHERE ingest_id <> place
HAVING count(*) > 0
UNION ALL
SELECT 'a charge that is not positive or has no entry', count(*)
FROM vehicle_charges LEFT JOIN ledger USING (sequence)
WHERE loss_pico <= 0 OR ledger.sequence IS NULL
HAVING count(*) > 0
UNION ALL
SELECT 'a release without its charge', count(*)
FROM releases ANTI JOIN ledger USING (sequence)
HAVING count(*) > 0
UNION ALL
SELECT 'a charge without its release', count(*)
FROM ledger ANTI JOIN releases USING (sequence)
WHERE entry LIKE '%"kind":"charge"%'
HAVING count(*) > 0
UNION ALL
SELECT 'a vehicle charged twice for one release', count(*)
FROM (SELECT sequence, vehicle_id FROM vehicle_charges GROUP BY ALL HAVING count(*) > 1)
HAVING count(*) > 0
UNION ALL
SELECT 'a charge to an unknown vehicle', count(*)
FROM vehicle_charges ANTI JOIN vehicles USING (vehicle_id)
-- account 0 is that of every possible vehicle, where nothing about any is public
WHERE vehicle_id <> 0 OR NOT EXISTS (
    FROM ledger WHERE contains(entry, '"kind":"promise"') AND contains(entry, '"relation":"add_or_remove_user"')
)
HAVING count(*) > 0
UNION ALL
SELECT 'a gap in the ledger', count(*)
FROM (SELECT sequence, row_number() OVER (ORDER BY sequence) AS place FROM ledger)
WHERE sequence <> place
HAVING count(*) > 0
UNION ALL
SELECT 'a vehicle whose pseudonym is not 32 bytes', count(*)
FROM vehicles
WHERE octet_length(hmac) <> 32
HAVING count(*) > 0
UNION ALL
SELECT 'a release without its allocation, or without its values when they are drawn', count(*)
FROM releases LEFT JOIN (
    SELECT release_id, list_sort(list(DISTINCT part)) AS parts FROM release_pieces GROUP BY release_id
) USING (release_id)
WHERE parts IS DISTINCT FROM CASE
    WHEN drawn THEN ['allocation', 'bins', 'facts', 'measured'] ELSE ['allocation'] END
HAVING count(*) > 0
UNION ALL
SELECT 'a piece of an unknown release', count(*)
FROM release_pieces ANTI JOIN releases USING (release_id)
HAVING count(*) > 0
UNION ALL
SELECT 'a gap in the pieces of a release', count(*)
FROM (SELECT count(*) AS all_of_them, count(DISTINCT number) AS numbers, min(number) AS first, max(number) AS last
      FROM release_pieces GROUP BY release_id, part)
WHERE first <> 1 OR last <> all_of_them OR numbers <> all_of_them
HAVING count(*) > 0
UNION ALL
SELECT 'a published release without values', count(*)
FROM releases
WHERE published AND NOT drawn
HAVING count(*) > 0;
