-- Views of the released database. Post-processing of released rows: free of privacy cost.
-- Manifest fields are read from releases.disclosure. Only functions that DuckDB has had since 1.2.

CREATE VIEW latest_cells AS -- The cells of the newest map that is not withdrawn (of the newest answer to a question, where there is no map); of a stream, its newest publication.
-- One row a bin of the newest release that is not withdrawn; of a stream, its newest publication.
SELECT hex_id, place, slot_label, * EXCLUDE (hex_id, place, slot_label)
FROM cells
WHERE release_id = (
    -- the city's own maps come before answers to single questions
    SELECT release_id FROM releases WHERE status = 'published'
    ORDER BY (disclosure ->> '$.identity.question') IS NOT NULL, ledger_sequence DESC
    LIMIT 1
)
AND (publication IS NULL OR publication = (
    SELECT max(number) FROM publications WHERE publications.release_id = cells.release_id
));
COMMENT ON COLUMN latest_cells.release_id IS 'The release.';
COMMENT ON COLUMN latest_cells.hex_id IS 'H3 cell as hexadecimal text; the other columns are those of cells.';

CREATE VIEW manifest AS -- One row a release: what its manifest says in words; lists have views of their own.
SELECT
    release_id, -- The release.
    disclosure ->> '$.identity.publisher'                                AS publisher, -- Who answers for it.
    disclosure ->> '$.coverage.place'                                    AS place, -- What it is a map of.
    disclosure ->> '$.identity.supersedes'                               AS supersedes, -- The release that it replaces, if any.
    disclosure ->> '$.identity.question'                                 AS question, -- The priced question that it answers; null for the city's own maps.
    disclosure ->> '$.coverage.selection.in_words'                       AS selection, -- Which hours and places count; null when all of area and period do.
    disclosure ->> '$.identity.software.version'                         AS software_version, -- Version of trafficdp that made it.
    disclosure ->> '$.guarantee.definition'                              AS definition, -- Kind of guarantee.
    disclosure ->> '$.guarantee.in_words'                                AS guarantee, -- The guarantee in words.
    disclosure ->> '$.unit.privacy_unit'                                 AS privacy_unit, -- Who is protected.
    disclosure ->> '$.unit.protected'                                    AS protected, -- What is protected; see the view not_protected for what is not.
    disclosure ->> '$.honesty.counts_revealed'                           AS counts_revealed, -- What the list of bins reveals.
    disclosure ->> '$.coverage.bin_list'                                 AS bin_list, -- Why these bins are listed and no others.
    disclosure ->> '$.bounds.method'                                     AS bounding, -- How the influence of a vehicle was bounded.
    disclosure ->> '$.accounting.composition'                            AS composition, -- How the losses of bins were added up.
    disclosure ->> '$.uncertainty.interval_kind'                         AS interval_kind, -- What the intervals are intervals of.
    CAST(disclosure ->> '$.uncertainty.simultaneous' AS BOOLEAN)         AS intervals_simultaneous, -- Whether all intervals hold at once; if false, each by itself.
    disclosure ->> '$.honesty.tuning_data'                               AS tuning_data, -- Data that settings were chosen from.
    CAST(disclosure ->> '$.honesty.forced' AS BOOLEAN)                   AS forced -- Whether it was released although it says little.
FROM releases;

CREATE VIEW assumptions AS -- One row a (release, assumption): what the guarantee rests on.
SELECT
    release_id, -- The release.
    unnest(generate_series(1, len(listed)))                              AS number, -- 1, 2, ... as in the manifest.
    unnest(listed) ->> '$.code'                                          AS code, -- Short name.
    unnest(listed) ->> '$.text'                                          AS text -- The assumption in plain words.
FROM (SELECT release_id, CAST(disclosure -> '$.honesty.assumptions' AS JSON[]) AS listed FROM releases);

CREATE VIEW not_protected AS -- One row a (release, sentence): what the guarantee does not cover.
SELECT
    release_id, -- The release.
    unnest(generate_series(1, len(listed)))                              AS number, -- 1, 2, ... as in the manifest.
    unnest(listed)                                                       AS text -- What is not protected, in plain words.
FROM (SELECT release_id, CAST(disclosure -> '$.unit.not_protected' AS VARCHAR[]) AS listed FROM releases);

CREATE VIEW mechanisms AS -- One row a (release, statistic): how it was made noisy.
SELECT
    release_id, -- The release.
    one ->> '$.statistic'                                                AS statistic, -- Name of the statistic, with its unit, as in the files of the release.
    one ->> '$.description'                                              AS description, -- What it is.
    one ->> '$.unit'                                                     AS unit, -- Unit of the statistic and of the noise scales.
    one ->> '$.mechanism'                                                AS mechanism, -- The method.
    one ->> '$.distribution'                                             AS distribution, -- Of the noise.
    one ->> '$.sensitivity'                                              AS sensitivity, -- How far one vehicle can move it.
    one ->> '$.interval_kind'                                            AS interval_kind, -- guaranteed (a theorem for every bin) or calibrated (by a posterior).
    CAST(one ->> '$.noise_scale_min' AS DOUBLE)                          AS noise_scale_min, -- Smallest scale over the bins.
    CAST(one ->> '$.noise_scale_max' AS DOUBLE)                          AS noise_scale_max, -- Largest scale over the bins.
    CAST(one ->> '$.share' AS DOUBLE)                                    AS share, -- Its part of epsilon; null when statistics are priced jointly.
    one ->> '$.sampler'                                                  AS sampler, -- What drew the noise.
    one ->> '$.library'                                                  AS library -- Version of the library that drew it.
FROM (SELECT release_id, unnest(CAST(disclosure -> '$.mechanisms' AS JSON[])) AS one FROM releases);

CREATE VIEW worst_case_bias AS -- One row a (release, statistic): the part of the error that is no noise.
SELECT
    release_id, -- The release.
    one ->> '$.statistic'                                                AS statistic, -- Name of the statistic, with its unit.
    CAST(one ->> '$.bias' AS DOUBLE)                                     AS bias, -- Largest bias over all data.
    one ->> '$.unit'                                                     AS unit -- Unit of the bias.
FROM (
    SELECT release_id, unnest(CAST(disclosure -> '$.uncertainty.worst_case_bias' AS JSON[])) AS one
    FROM releases
);

CREATE VIEW sources AS -- One row a (release, source of records).
SELECT
    release_id, -- The release.
    one ->> '$.name'                                                     AS name, -- Name of the source.
    one ->> '$.format'                                                   AS format, -- Format of its files.
    one ->> '$.speed'                                                    AS speed, -- reported (by the device), derived (from positions) or mixed.
    CAST(one -> '$.cleaning' AS VARCHAR[])                               AS cleaning -- The rules by which records were left out; unnest(cleaning) lists them.
FROM (SELECT release_id, unnest(CAST(disclosure -> '$.data.sources' AS JSON[])) AS one FROM releases);

CREATE VIEW post_processing AS -- One row a (release, step): what was done to the noisy numbers.
SELECT
    release_id, -- The release.
    unnest(generate_series(1, len(listed)))                              AS number, -- 1, 2, ... in order.
    unnest(listed)                                                       AS text -- The step in plain words.
FROM (SELECT release_id, CAST(disclosure -> '$.post_processing' AS VARCHAR[]) AS listed FROM releases);

CREATE VIEW budget AS -- Totals over all releases. No vehicle's own spending is here, or anywhere in this file.
-- One row: totals over all releases, withdrawn ones included (budget never comes back).
SELECT
    count(*)                                                             AS releases, -- Releases, withdrawn ones included: budget never comes back.
    CASE WHEN count(disclosure ->> '$.guarantee.rho') = 0
        THEN coalesce(sum(epsilon), 0) END                               AS sum_of_epsilons, -- Sum of their losses: no vehicle has lost more. Null where losses are rho: epsilons of (epsilon, delta) do not add up.
    CAST(max_by(disclosure ->> '$.accounting.budget_per_vehicle', ledger_sequence)
        AS DECIMAL(24, 12))                                              AS budget_per_vehicle, -- What no vehicle may pass, as of the newest release; rho where losses are rho.
    CAST(max_by(disclosure ->> '$.accounting.left_for_every_vehicle', ledger_sequence)
        AS DECIMAL(24, 12))                                              AS left_for_every_vehicle -- What every vehicle surely had left after the newest release; rho where losses are rho.
FROM releases;
