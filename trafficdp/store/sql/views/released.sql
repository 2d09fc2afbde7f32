-- Views of the released database. Post-processing of released rows: free of privacy cost.

CREATE VIEW latest_cells AS
-- One row a bin of the newest release that is not withdrawn.
SELECT cells.*
FROM cells
WHERE release_id = (
    SELECT max_by(release_id, ledger_sequence) FROM releases WHERE status = 'published'
);
COMMENT ON VIEW latest_cells IS 'The cells of the newest release that is not withdrawn.';

CREATE VIEW budget AS
-- One row: totals over all releases, withdrawn ones included (budget never comes back).
SELECT
    count(*)                                                             AS releases,
    coalesce(sum(epsilon), 0)                                            AS sum_of_epsilons
FROM releases;
COMMENT ON VIEW budget IS 'Totals over all releases: how many, and the sum of their losses (an upper bound a vehicle).';
