-- Views of the released database. Post-processing of released rows: free of privacy cost.
-- Manifest fields are read from releases.disclosure. Only functions that DuckDB has had since 1.2.

CREATE VIEW cells AS
-- One row a (release, bin), of a stream a (release, publication, bin).
SELECT kept.* REPLACE (
    coalesce(painted.slot, kept.slot)                                    AS slot,
    coalesce(painted.slot_label, kept.slot_label)                        AS slot_label,
    CASE WHEN painted.slot IS NULL THEN kept.slot_start ELSE painted.slot_start END AS slot_start,
    CASE WHEN painted.slot IS NULL THEN kept.slot_end ELSE painted.slot_end END     AS slot_end
)
FROM kept_cells AS kept LEFT JOIN painted_slots AS painted ON painted.release_id = kept.release_id;
COMMENT ON VIEW cells IS 'One row a (release, bin), for a stream a (release, publication, bin): every bin that it lists, in no order of their own (ORDER BY cell, slot). Speeds have their unit in their names.';
COMMENT ON COLUMN cells.release_id IS 'The release.';
COMMENT ON COLUMN cells.publication IS 'Of a stream: publications.number; null for a release that is made once.';
COMMENT ON COLUMN cells.h3 IS 'H3 cell as hexadecimal text; the number of a zone.';
COMMENT ON COLUMN cells.place IS 'Where the hexagon lies, in words, by public layers alone.';
COMMENT ON COLUMN cells.cell IS 'H3 cell as a number; that of a zone.';
COMMENT ON COLUMN cells.resolution IS 'H3 resolution of the cell, (cell >> 52) & 15; null: a zone.';
COMMENT ON COLUMN cells.slot IS 'Slot number; its meaning depends on slot_kind.';
COMMENT ON COLUMN cells.slot_kind IS 'How time is cut in this row: that of the release, or in maps of several, a longer one.';
COMMENT ON COLUMN cells.slot_label IS 'Slot in words.';
COMMENT ON COLUMN cells.slot_start IS 'Start of the slot; null when it recurs.';
COMMENT ON COLUMN cells.slot_end IS 'End of the slot; null when it recurs.';
COMMENT ON COLUMN cells.status IS 'released, withheld (too few vehicles) or uninformative (forced out).';
COMMENT ON COLUMN cells.vehicles IS 'Vehicles seen; null unless counts are published.';
COMMENT ON COLUMN cells.records IS 'GPS records; null unless counts are published.';
COMMENT ON COLUMN cells.speed_mean_status IS 'released, constant, withheld or uninformative.';
COMMENT ON COLUMN cells.speed_mean_interval_kind IS 'guaranteed (a theorem for every bin) or calibrated (on average, on other days); null where there is no interval.';
COMMENT ON COLUMN cells.speed_mean_epsilon IS 'What its mechanism was given in the bin; null where noise is priced jointly.';
COMMENT ON COLUMN cells.speed_variance_status IS 'released, constant, withheld or uninformative.';
COMMENT ON COLUMN cells.speed_variance_interval_kind IS 'guaranteed (a theorem for every bin) or calibrated (on average, on other days); null where there is no interval.';
COMMENT ON COLUMN cells.speed_variance_epsilon IS 'What its mechanism was given in the bin; null where noise is priced jointly.';
COMMENT ON COLUMN cells.speed_vehicle_mean_status IS 'released, constant, withheld or uninformative.';
COMMENT ON COLUMN cells.speed_vehicle_mean_interval_kind IS 'guaranteed (a theorem for every bin) or calibrated (on average, on other days); null where there is no interval.';
COMMENT ON COLUMN cells.speed_vehicle_mean_epsilon IS 'What its mechanism was given in the bin; null where noise is priced jointly.';

CREATE VIEW latest_cells AS
-- One row a bin of the newest release that is not withdrawn; of a stream, its newest publication.
SELECT h3, place, slot_label, * EXCLUDE (h3, place, slot_label)
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
COMMENT ON VIEW latest_cells IS 'The cells of the newest map that is not withdrawn (of the newest answer to a question, where there is no map); of a stream, its newest publication.';
COMMENT ON COLUMN latest_cells.release_id IS 'The release.';
COMMENT ON COLUMN latest_cells.h3 IS 'H3 cell as hexadecimal text; the other columns are those of cells.';

CREATE VIEW manifest AS
-- One row a release: what its manifest says in single words and sentences.
SELECT
    release_id,
    disclosure ->> '$.identity.publisher'                                AS publisher,
    disclosure ->> '$.coverage.place'                                    AS place,
    disclosure ->> '$.identity.supersedes'                               AS supersedes,
    disclosure ->> '$.identity.question'                                 AS question,
    disclosure ->> '$.coverage.selection.in_words'                       AS selection,
    disclosure ->> '$.identity.software.version'                         AS software_version,
    disclosure ->> '$.guarantee.definition'                              AS definition,
    disclosure ->> '$.guarantee.in_words'                                AS guarantee,
    disclosure ->> '$.unit.privacy_unit'                                 AS privacy_unit,
    disclosure ->> '$.unit.protected'                                    AS protected,
    disclosure ->> '$.honesty.counts_revealed'                           AS counts_revealed,
    disclosure ->> '$.coverage.bin_list'                                 AS bin_list,
    disclosure ->> '$.bounds.method'                                     AS bounding,
    disclosure ->> '$.accounting.composition'                            AS composition,
    disclosure ->> '$.uncertainty.interval_kind'                         AS interval_kind,
    CAST(disclosure ->> '$.uncertainty.simultaneous' AS BOOLEAN)         AS intervals_simultaneous,
    disclosure ->> '$.honesty.tuning_data'                               AS tuning_data,
    CAST(disclosure ->> '$.honesty.forced' AS BOOLEAN)                   AS forced
FROM releases;
COMMENT ON VIEW manifest IS 'One row a release: what its manifest says in words; lists have views of their own.';
COMMENT ON COLUMN manifest.release_id IS 'The release.';
COMMENT ON COLUMN manifest.publisher IS 'Who answers for it.';
COMMENT ON COLUMN manifest.place IS 'What it is a map of.';
COMMENT ON COLUMN manifest.supersedes IS 'The release that it replaces, if any.';
COMMENT ON COLUMN manifest.question IS 'The priced question that it answers; null for the city''s own maps.';
COMMENT ON COLUMN manifest.selection IS 'Which hours and places count; null when all of area and period do.';
COMMENT ON COLUMN manifest.software_version IS 'Version of trafficdp that made it.';
COMMENT ON COLUMN manifest.definition IS 'Kind of guarantee.';
COMMENT ON COLUMN manifest.guarantee IS 'The guarantee in words.';
COMMENT ON COLUMN manifest.privacy_unit IS 'Who is protected.';
COMMENT ON COLUMN manifest.protected IS 'What is protected; see the view not_protected for what is not.';
COMMENT ON COLUMN manifest.counts_revealed IS 'What the list of bins reveals.';
COMMENT ON COLUMN manifest.bin_list IS 'Why these bins are listed and no others.';
COMMENT ON COLUMN manifest.bounding IS 'How the influence of a vehicle was bounded.';
COMMENT ON COLUMN manifest.composition IS 'How the losses of bins were added up.';
COMMENT ON COLUMN manifest.interval_kind IS 'What the intervals are intervals of.';
COMMENT ON COLUMN manifest.intervals_simultaneous IS 'Whether all intervals hold at once; if false, each by itself.';
COMMENT ON COLUMN manifest.tuning_data IS 'Data that settings were chosen from.';
COMMENT ON COLUMN manifest.forced IS 'Whether it was released although it says little.';

CREATE VIEW assumptions AS
-- One row a (release, assumption).
SELECT
    release_id,
    unnest(generate_series(1, len(listed)))                              AS number,
    unnest(listed) ->> '$.code'                                          AS code,
    unnest(listed) ->> '$.text'                                          AS text
FROM (SELECT release_id, CAST(disclosure -> '$.honesty.assumptions' AS JSON[]) AS listed FROM releases);
COMMENT ON VIEW assumptions IS 'One row a (release, assumption): what the guarantee rests on.';
COMMENT ON COLUMN assumptions.release_id IS 'The release.';
COMMENT ON COLUMN assumptions.number IS '1, 2, ... as in the manifest.';
COMMENT ON COLUMN assumptions.code IS 'Short name.';
COMMENT ON COLUMN assumptions.text IS 'The assumption in plain words.';

CREATE VIEW not_protected AS
-- One row a (release, thing that is not protected).
SELECT
    release_id,
    unnest(generate_series(1, len(listed)))                              AS number,
    unnest(listed)                                                       AS text
FROM (SELECT release_id, CAST(disclosure -> '$.unit.not_protected' AS VARCHAR[]) AS listed FROM releases);
COMMENT ON VIEW not_protected IS 'One row a (release, sentence): what the guarantee does not cover.';
COMMENT ON COLUMN not_protected.release_id IS 'The release.';
COMMENT ON COLUMN not_protected.number IS '1, 2, ... as in the manifest.';
COMMENT ON COLUMN not_protected.text IS 'What is not protected, in plain words.';

CREATE VIEW mechanisms AS
-- One row a (release, statistic).
SELECT
    release_id,
    one ->> '$.statistic'                                                AS statistic,
    one ->> '$.description'                                              AS description,
    one ->> '$.unit'                                                     AS unit,
    one ->> '$.mechanism'                                                AS mechanism,
    one ->> '$.distribution'                                             AS distribution,
    one ->> '$.sensitivity'                                              AS sensitivity,
    one ->> '$.interval_kind'                                            AS interval_kind,
    CAST(one ->> '$.noise_scale_min' AS DOUBLE)                          AS noise_scale_min,
    CAST(one ->> '$.noise_scale_max' AS DOUBLE)                          AS noise_scale_max,
    CAST(one ->> '$.share' AS DOUBLE)                                    AS share,
    one ->> '$.sampler'                                                  AS sampler,
    one ->> '$.library'                                                  AS library
FROM (SELECT release_id, unnest(CAST(disclosure -> '$.mechanisms' AS JSON[])) AS one FROM releases);
COMMENT ON VIEW mechanisms IS 'One row a (release, statistic): how it was made noisy.';
COMMENT ON COLUMN mechanisms.release_id IS 'The release.';
COMMENT ON COLUMN mechanisms.statistic IS 'Name of the statistic, with its unit, as in the files of the release.';
COMMENT ON COLUMN mechanisms.description IS 'What it is.';
COMMENT ON COLUMN mechanisms.unit IS 'Unit of the statistic and of the noise scales.';
COMMENT ON COLUMN mechanisms.mechanism IS 'The method.';
COMMENT ON COLUMN mechanisms.distribution IS 'Of the noise.';
COMMENT ON COLUMN mechanisms.sensitivity IS 'How far one vehicle can move it.';
COMMENT ON COLUMN mechanisms.interval_kind IS 'guaranteed (a theorem for every bin) or calibrated (on average, on other days).';
COMMENT ON COLUMN mechanisms.noise_scale_min IS 'Smallest scale over the bins.';
COMMENT ON COLUMN mechanisms.noise_scale_max IS 'Largest scale over the bins.';
COMMENT ON COLUMN mechanisms.share IS 'Its part of epsilon; null when statistics are priced jointly.';
COMMENT ON COLUMN mechanisms.sampler IS 'What drew the noise.';
COMMENT ON COLUMN mechanisms.library IS 'Version of the library that drew it.';

CREATE VIEW worst_case_bias AS
-- One row a (release, statistic).
SELECT
    release_id,
    one ->> '$.statistic'                                                AS statistic,
    CAST(one ->> '$.bias' AS DOUBLE)                                     AS bias,
    one ->> '$.unit'                                                     AS unit
FROM (
    SELECT release_id, unnest(CAST(disclosure -> '$.uncertainty.worst_case_bias' AS JSON[])) AS one
    FROM releases
);
COMMENT ON VIEW worst_case_bias IS 'One row a (release, statistic): the part of the error that is no noise.';
COMMENT ON COLUMN worst_case_bias.release_id IS 'The release.';
COMMENT ON COLUMN worst_case_bias.statistic IS 'Name of the statistic, with its unit.';
COMMENT ON COLUMN worst_case_bias.bias IS 'Largest bias over all data.';
COMMENT ON COLUMN worst_case_bias.unit IS 'Unit of the bias.';

CREATE VIEW sources AS
-- One row a (release, source of records).
SELECT
    release_id,
    one ->> '$.name'                                                     AS name,
    one ->> '$.format'                                                   AS format,
    one ->> '$.speed'                                                    AS speed,
    CAST(one -> '$.cleaning' AS VARCHAR[])                               AS cleaning
FROM (SELECT release_id, unnest(CAST(disclosure -> '$.data.sources' AS JSON[])) AS one FROM releases);
COMMENT ON VIEW sources IS 'One row a (release, source of records).';
COMMENT ON COLUMN sources.release_id IS 'The release.';
COMMENT ON COLUMN sources.name IS 'Name of the source.';
COMMENT ON COLUMN sources.format IS 'Format of its files.';
COMMENT ON COLUMN sources.speed IS 'reported (by the device), derived (from positions) or mixed.';
COMMENT ON COLUMN sources.cleaning IS 'The rules by which records were left out; unnest(cleaning) lists them.';

CREATE VIEW post_processing AS
-- One row a (release, step).
SELECT
    release_id,
    unnest(generate_series(1, len(listed)))                              AS number,
    unnest(listed)                                                       AS text
FROM (SELECT release_id, CAST(disclosure -> '$.post_processing' AS VARCHAR[]) AS listed FROM releases);
COMMENT ON VIEW post_processing IS 'One row a (release, step): what was done to the noisy numbers.';
COMMENT ON COLUMN post_processing.release_id IS 'The release.';
COMMENT ON COLUMN post_processing.number IS '1, 2, ... in order.';
COMMENT ON COLUMN post_processing.text IS 'The step in plain words.';

CREATE VIEW budget AS
-- One row: totals over all releases, withdrawn ones included (budget never comes back).
SELECT
    count(*)                                                             AS releases,
    CASE WHEN count(disclosure ->> '$.guarantee.rho') = 0
        THEN coalesce(sum(epsilon), 0) END                               AS sum_of_epsilons,
    CAST(max_by(disclosure ->> '$.accounting.budget_per_vehicle', ledger_sequence)
        AS DECIMAL(24, 12))                                              AS budget_per_vehicle,
    CAST(max_by(disclosure ->> '$.accounting.left_for_every_vehicle', ledger_sequence)
        AS DECIMAL(24, 12))                                              AS left_for_every_vehicle
FROM releases;
COMMENT ON VIEW budget IS 'Totals over all releases. No vehicle''s own spending is here, or anywhere in this file.';
COMMENT ON COLUMN budget.releases IS 'Releases, withdrawn ones included: budget never comes back.';
COMMENT ON COLUMN budget.sum_of_epsilons IS 'Sum of their losses: no vehicle has lost more. Null where losses are rho: epsilons of (epsilon, delta) do not add up.';
COMMENT ON COLUMN budget.budget_per_vehicle IS 'What no vehicle may pass, as of the newest release; rho where losses are rho.';
COMMENT ON COLUMN budget.left_for_every_vehicle IS 'What every vehicle surely had left after the newest release; rho where losses are rho.';
