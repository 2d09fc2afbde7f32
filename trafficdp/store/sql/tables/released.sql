-- The released database: only what anyone may have. Built anew from Release objects, never altered.
-- Grain and meaning are stated on each table. The speeds themselves are columns of tables/speeds.sql.

-- Without a key: an index would have all of it written anew with every release. An audit looks for names twice.
CREATE TABLE releases ( -- One row a release, withdrawn ones included (without their cells).
    release_id      VARCHAR     NOT NULL, -- Name of the release.
    created_at      TIMESTAMPTZ NOT NULL, -- When its charge was made.
    status          VARCHAR     NOT NULL, -- published or withdrawn.
    epsilon         DECIMAL(24, 12) NOT NULL, -- Privacy loss of the release: the largest over vehicles. Where disclosure names rho and delta: the epsilon that rho implies at delta.
    relation        VARCHAR     NOT NULL, -- Neighbouring relation of the guarantee.
    resolution      INTEGER, -- H3 resolution of the cells; the finest one of a map of several; null: zones.
    slot_kind       VARCHAR     NOT NULL, -- How time is cut.
    period_from     DATE        NOT NULL, -- First local day.
    period_to       DATE        NOT NULL, -- Last local day, included.
    time_zone       VARCHAR     NOT NULL, -- Time zone of days and slots.
    speed_unit      VARCHAR     NOT NULL, -- Unit of the speeds in cells: ms, kmh or mph; variances in its square.
    speed_bound     DOUBLE      NOT NULL, -- Speeds were clipped to 0 .. this, in speed_unit.
    interval_level  DOUBLE      NOT NULL, -- Level of the intervals, e.g. 0.95.
    min_vehicles    INTEGER     NOT NULL, -- Bins with fewer vehicles are withheld.
    ledger_sequence BIGINT      NOT NULL, -- Number of the charge in the ledger.
    ledger_head     VARCHAR     NOT NULL, -- Hash of the ledger up to that charge.
    disclosure      JSON        NOT NULL -- Everything the manifest says but the files.
);

CREATE TABLE publications ( -- One row a publication of a stream: the map as it stood then. No further loss: one epsilon covers all.
    release_id      VARCHAR     NOT NULL, -- The stream.
    number          INTEGER     NOT NULL, -- 1, 2, ... in order.
    as_of           TIMESTAMPTZ NOT NULL, -- End of the step that it closed: records up to then.
    ledger_sequence BIGINT      NOT NULL -- Its entry in the ledger.
);

CREATE TABLE cells ( -- One row a (release, bin), for a stream a (release, publication, bin): every bin that it lists, in no order of their own (ORDER BY cell, slot). Speeds have their unit in their names.
    release_id                        VARCHAR NOT NULL, -- The release.
    publication                       INTEGER, -- Of a stream: publications.number; null for a release that is made once.
    hex_id                                VARCHAR NOT NULL, -- H3 cell as hexadecimal text; the number of a zone.
    place                             VARCHAR NOT NULL, -- Where the hexagon lies, in words, by public layers alone.
    cell                              UBIGINT NOT NULL, -- H3 cell as a number; that of a zone.
    resolution                        INTEGER, -- H3 resolution of the cell, (cell >> 52) & 15; null: a zone.
    slot                              BIGINT  NOT NULL, -- Slot number; its meaning depends on slot_kind.
    slot_kind                         VARCHAR NOT NULL, -- How time is cut in this row: that of the release, or in maps of several, a longer one.
    slot_label                        VARCHAR NOT NULL, -- Slot in words.
    slot_start                        TIMESTAMPTZ, -- Start of the slot; null when it recurs.
    slot_end                          TIMESTAMPTZ, -- End of the slot; null when it recurs.
    status                            VARCHAR NOT NULL, -- released, withheld (too few vehicles) or uninformative (forced out).
    vehicles                          BIGINT, -- Vehicles seen; null unless counts are published.
    records                           BIGINT, -- GPS records; null unless counts are published.
    speed_mean_status                 VARCHAR, -- released, constant, withheld or uninformative.
    speed_mean_interval_kind          VARCHAR, -- guaranteed (a theorem for every bin) or calibrated (by a posterior); null where there is no interval.
    speed_mean_slower_chance          DOUBLE, -- Chance that it is slower than the city by a fifth, by the posterior; null without one.
    speed_mean_faster_chance          DOUBLE, -- The same of faster.
    speed_mean_of_scheduled           DOUBLE, -- The mean over the scheduled speed, where a timetable is known; else null.
    speed_mean_of_scheduled_low       DOUBLE, -- Lower end of the 95 % interval of that.
    speed_mean_of_scheduled_high      DOUBLE, -- Upper end of that interval.
    speed_mean_epsilon                DOUBLE, -- What its mechanism was given in the bin; null where noise is priced jointly.
    speed_variance_status             VARCHAR, -- released, constant, withheld or uninformative.
    speed_variance_interval_kind      VARCHAR, -- guaranteed (a theorem for every bin) or calibrated (by a posterior); null where there is no interval.
    speed_variance_epsilon            DOUBLE, -- What its mechanism was given in the bin; null where noise is priced jointly.
    speed_vehicle_mean_status         VARCHAR, -- released, constant, withheld or uninformative.
    speed_vehicle_mean_interval_kind  VARCHAR, -- guaranteed (a theorem for every bin) or calibrated (by a posterior); null where there is no interval.
    speed_vehicle_mean_slower_chance  DOUBLE, -- Chance that it is slower than the city by a fifth, by the posterior; null without one.
    speed_vehicle_mean_faster_chance  DOUBLE, -- The same of faster.
    speed_vehicle_mean_of_scheduled   DOUBLE, -- The mean over the scheduled speed, where a timetable is known; else null.
    speed_vehicle_mean_of_scheduled_low DOUBLE, -- Lower end of the 95 % interval of that.
    speed_vehicle_mean_of_scheduled_high DOUBLE, -- Upper end of that interval.
    speed_vehicle_mean_epsilon        DOUBLE -- What its mechanism was given in the bin; null where noise is priced jointly.
);

CREATE TABLE quantiles ( -- One row a quantile over vehicles and bin, of the answers that have any: maps have none.
    release_id VARCHAR NOT NULL, -- The release.
    hex_id         VARCHAR NOT NULL, -- H3 index as text, or the number of the zone.
    cell       UBIGINT NOT NULL, -- The same as a number.
    slot       BIGINT  NOT NULL, -- Number of the slot.
    quantile   DOUBLE  NOT NULL, -- Which share of the vehicles is slower: 0.5 is the median.
    rank_low   BIGINT, -- With the release's interval level the speed is at least that of this vehicle, from the slowest; 0: of none.
    rank_high  BIGINT, -- The same: at most that of this vehicle; one more than there are: of none.
    status     VARCHAR NOT NULL, -- released, withheld or uninformative.
    epsilon    DOUBLE -- What its selection was given in the bin; null where losses are rho.
);
