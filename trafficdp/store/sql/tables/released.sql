-- The released database: only what anyone may have. Built anew from Release objects, never altered.
-- Grain and meaning are stated on each table. The speeds themselves are columns of tables/speeds.sql.

CREATE TABLE releases (
    release_id      VARCHAR     NOT NULL PRIMARY KEY,
    created_at      TIMESTAMPTZ NOT NULL,
    status          VARCHAR     NOT NULL,
    epsilon         DECIMAL(24, 12) NOT NULL,
    relation        VARCHAR     NOT NULL,
    resolution      INTEGER,
    slot_kind       VARCHAR     NOT NULL,
    period_from     DATE        NOT NULL,
    period_to       DATE        NOT NULL,
    time_zone       VARCHAR     NOT NULL,
    speed_unit      VARCHAR     NOT NULL,
    speed_bound     DOUBLE      NOT NULL,
    interval_level  DOUBLE      NOT NULL,
    min_vehicles    INTEGER     NOT NULL,
    ledger_sequence BIGINT      NOT NULL,
    ledger_head     VARCHAR     NOT NULL,
    disclosure      JSON        NOT NULL
);
COMMENT ON TABLE releases IS 'One row a release, withdrawn ones included (without their cells).';
COMMENT ON COLUMN releases.release_id IS 'Name of the release.';
COMMENT ON COLUMN releases.created_at IS 'When its charge was made.';
COMMENT ON COLUMN releases.status IS 'published or withdrawn.';
COMMENT ON COLUMN releases.epsilon IS 'Privacy loss of the release: the largest over vehicles. Where disclosure names rho and delta: the epsilon that rho implies at delta.';
COMMENT ON COLUMN releases.relation IS 'Neighbouring relation of the guarantee.';
COMMENT ON COLUMN releases.resolution IS 'H3 resolution of the cells; the finest one of a map of several; null: zones.';
COMMENT ON COLUMN releases.slot_kind IS 'How time is cut.';
COMMENT ON COLUMN releases.period_from IS 'First local day.';
COMMENT ON COLUMN releases.period_to IS 'Last local day, included.';
COMMENT ON COLUMN releases.time_zone IS 'Time zone of days and slots.';
COMMENT ON COLUMN releases.speed_unit IS 'Unit of the speeds in cells: ms, kmh or mph; variances in its square.';
COMMENT ON COLUMN releases.speed_bound IS 'Speeds were clipped to 0 .. this, in speed_unit.';
COMMENT ON COLUMN releases.interval_level IS 'Level of the intervals, e.g. 0.95.';
COMMENT ON COLUMN releases.min_vehicles IS 'Bins with fewer vehicles are withheld.';
COMMENT ON COLUMN releases.ledger_sequence IS 'Number of the charge in the ledger.';
COMMENT ON COLUMN releases.ledger_head IS 'Hash of the ledger up to that charge.';
COMMENT ON COLUMN releases.disclosure IS 'Everything the manifest says but the files.';

CREATE TABLE publications (
    release_id      VARCHAR     NOT NULL,
    number          INTEGER     NOT NULL,
    as_of           TIMESTAMPTZ NOT NULL,
    ledger_sequence BIGINT      NOT NULL
);
COMMENT ON TABLE publications IS 'One row a publication of a stream: the map as it stood then. No further loss: one epsilon covers all.';
COMMENT ON COLUMN publications.release_id IS 'The stream.';
COMMENT ON COLUMN publications.number IS '1, 2, ... in order.';
COMMENT ON COLUMN publications.as_of IS 'End of the step that it closed: records up to then.';
COMMENT ON COLUMN publications.ledger_sequence IS 'Its entry in the ledger.';

CREATE TABLE kept_cells (
    release_id                        VARCHAR NOT NULL,
    publication                       INTEGER,
    h3                                VARCHAR NOT NULL,
    place                             VARCHAR NOT NULL,
    cell                              UBIGINT NOT NULL,
    resolution                        INTEGER,
    slot                              BIGINT  NOT NULL,
    slot_kind                         VARCHAR NOT NULL,
    slot_label                        VARCHAR NOT NULL,
    slot_start                        TIMESTAMPTZ,
    slot_end                          TIMESTAMPTZ,
    status                            VARCHAR NOT NULL,
    vehicles                          BIGINT,
    records                           BIGINT,
    speed_mean_status                 VARCHAR,
    speed_mean_interval_kind          VARCHAR,
    speed_mean_epsilon                DOUBLE,
    speed_variance_status             VARCHAR,
    speed_variance_interval_kind      VARCHAR,
    speed_variance_epsilon            DOUBLE,
    speed_vehicle_mean_status         VARCHAR,
    speed_vehicle_mean_interval_kind  VARCHAR,
    speed_vehicle_mean_epsilon        DOUBLE
);
COMMENT ON TABLE kept_cells IS 'Ask cells instead. The same columns; where slots are painted one row a hexagon, its first slot.';

CREATE TABLE painted_slots (
    release_id VARCHAR NOT NULL,
    slot       BIGINT  NOT NULL,
    slot_label VARCHAR NOT NULL,
    slot_start TIMESTAMPTZ,
    slot_end   TIMESTAMPTZ
);
COMMENT ON TABLE painted_slots IS 'One row a slot of a release whose slots were not measured apart: all carry the numbers of their hexagon.';
COMMENT ON COLUMN painted_slots.release_id IS 'The release.';
COMMENT ON COLUMN painted_slots.slot IS 'Slot number.';
COMMENT ON COLUMN painted_slots.slot_label IS 'Slot in words.';
COMMENT ON COLUMN painted_slots.slot_start IS 'Start of the slot; null when it recurs.';
COMMENT ON COLUMN painted_slots.slot_end IS 'End of the slot; null when it recurs.';

CREATE TABLE quantiles (
    release_id VARCHAR NOT NULL,
    h3         VARCHAR NOT NULL,
    cell       UBIGINT NOT NULL,
    slot       BIGINT  NOT NULL,
    quantile   DOUBLE  NOT NULL,
    rank_low   BIGINT,
    rank_high  BIGINT,
    status     VARCHAR NOT NULL,
    epsilon    DOUBLE
);
COMMENT ON TABLE quantiles IS 'One row a quantile over vehicles and bin, of the answers that have any: maps have none.';
COMMENT ON COLUMN quantiles.release_id IS 'The release.';
COMMENT ON COLUMN quantiles.h3 IS 'H3 index as text, or the number of the zone.';
COMMENT ON COLUMN quantiles.cell IS 'The same as a number.';
COMMENT ON COLUMN quantiles.slot IS 'Number of the slot.';
COMMENT ON COLUMN quantiles.quantile IS 'Which share of the vehicles is slower: 0.5 is the median.';
COMMENT ON COLUMN quantiles.rank_low IS 'With the release''s interval level the speed is at least that of this vehicle, from the slowest; 0: of none.';
COMMENT ON COLUMN quantiles.rank_high IS 'The same: at most that of this vehicle; one more than there are: of none.';
COMMENT ON COLUMN quantiles.status IS 'released, withheld or uninformative.';
COMMENT ON COLUMN quantiles.epsilon IS 'What its selection was given in the bin; null where losses are rho.';
